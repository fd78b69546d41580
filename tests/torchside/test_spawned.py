"""Which argument lists start a compiler, and which only ask one."""

from __future__ import annotations

import pytest

from prewarm.torchside.spawned import argv_of_audit, compiler_start


@pytest.mark.parametrize(
    "line",
    [
        "g++ a.cpp -o a.so -shared",
        "/usr/bin/x86_64-linux-gnu-g++-12 -c a.cpp -o a.o",
        "clang++ a.cpp -fPIC -o a.so",
        "ccache g++ -c a.cpp",
        "env LC_ALL=C gcc a.c",
        "ptxas --gpu-name=sm_90a a.ptx -o a.cubin",
        "nvcc -cubin a.cu",
        "g++ -v a.cpp -o a.so",
        "ld.lld a.o -o a.so",
    ],
)
def test_compiles(line: str) -> None:
    assert compiler_start(line.split()) is not None


@pytest.mark.parametrize(
    "line",
    [
        "g++ --version",
        "g++ -v",
        "gcc -dumpversion",
        "g++ -print-file-name=libgomp.so",
        "g++ -E -P a.h",
        "gcc -M a.c",
        "ptxas --version",
        "python -c pass",
        "ls g++",
        "ldconfig -p",
        "ldd a.so",
        "",
    ],
)
def test_compiles_nothing(line: str) -> None:
    assert compiler_start(line.split()) is None


def test_a_shell_is_seen_through() -> None:
    argv = argv_of_audit(
        "subprocess.Popen", ("/bin/sh", ["/bin/sh", "-c", "g++ a.cpp -o a"], None, None)
    )
    assert argv is not None
    assert compiler_start(argv) == "g++"
    assert argv_of_audit("os.system", (b"g++ a.cpp -o a",)) == ["g++", "a.cpp", "-o", "a"]
    assert argv_of_audit("open", ("x",)) is None

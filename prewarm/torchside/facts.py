"""The facts about one interpreter and machine that decide a hit in torch's compile caches.

Standard library only, and torch is never imported: versions are read as text, the GPU through the
driver's own library. The hook runs this file in well under a tenth of a second, in process or under
another interpreter (``python facts.py --device cpu``), which prints one JSON object.

It gathers and judges nothing. ``None`` says that the fact is not there (no compiler, no GPU). No
value holds a path, since facts are published; where a path matters its digest stands for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
import sysconfig

TYPE_CHECKING = False  # typing takes 10 ms to import; type checkers take this name as true
if TYPE_CHECKING:
    from typing import Any

#: Flags of /proc/cpuinfo that torch/_inductor/cpu_vec_isa.py asks for: they decide the code.
CPU_FLAGS = (
    "avx2 fma f16c avx512f avx512dq avx512vl avx512bw avx512_vnni avx512_bf16 amx_tile amx_bf16"
    " amx_int8 amx_fp16 asimd sve sve2 bf16 svebf16 i8mm fphp asimdhp"
)

#: Variables that change what is compiled: these prefixes and these names. ``CI`` is a default of
#: torch/_functorch/config.py (error_on_custom_op_aliasing, 2.13), and so in each AOT key.
PREFIXES = ("TORCHINDUCTOR_", "TORCHDYNAMO_", "TORCH_DYNAMO_", "TORCH_COMPILE_", "TRITON_")
NAMES = (
    "CXX ATEN_CPU_CAPABILITY TORCH_ALLOW_TF32_CUBLAS_OVERRIDE TORCH_CACHING_PRECOMPILE"
    " CI TORCH_STRICT_PRECOMPILE ENABLE_PERSISTENT_TMA_MATMUL ENABLE_TEMPLATE_TMA_STORE"
    " ENABLE_TMA_LOAD_FOR_TEMPLATE_EPILOGUE TORCH_COMPILER_COLLECTIVES FAKE_ALLOW_META"
)
#: Of those, the ones that only say where to cache, what to log, how many helpers work, or that
#: nothing is compiled at all, and those that prewarm sets itself.
IGNORED = (
    "TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR TRITON_HOME TRITON_DUMP_DIR TRITON_OVERRIDE_DIR"
    " TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS TORCHINDUCTOR_COMPILE_THREADS"
    " TORCHINDUCTOR_WORKER_START TORCHINDUCTOR_FILE_LOCK_TIMEOUT TORCH_COMPILE_JOB_ID"
    " TORCHINDUCTOR_QUIESCE_ASYNC_COMPILE_POOL TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT"
    " TORCHINDUCTOR_WORKER_SUPPRESS_LOGGING TORCHINDUCTOR_MAX_AUTOTUNE_REPORT_CHOICES_STATS"
    " TORCHINDUCTOR_PROFILE_OUTPUT TORCH_COMPILE_CPROFILE TORCHDYNAMO_DISABLE"
    " TORCH_COMPILE_DISABLE"
)
IGNORED_WORDS = ("_LOG", "DEBUG", "VERBOSE", "TRACE", "PRINT", "_DUMP", "_REPRO", "PROFILER")

#: A compiler that does not tell its version within this time is not waited for.
CXX_TIMEOUT_S = 10.0


def gather(device: str, threads: int, library: str) -> dict[str, str | None]:
    """Read every fact for a model on ``device`` ("cpu", "cuda"); ``library`` "" is no library."""
    packages = _beside("facts_packages.py")
    torch_dir = packages["package_dir"]("torch")
    torch_version = packages["version_file"](torch_dir)
    cxx = _cxx()
    facts: dict[str, str | None] = {
        "python": sys.implementation.name + " " + sys.version.split()[0],
        "python_abi": sysconfig.get_config_var("SOABI"),
        "machine": os.uname().machine,
        "torch": torch_version.get("__version__"),
        "torch_git": torch_version.get("git_version"),
        "cuda": torch_version.get("cuda"),
        "triton": packages["version"]("triton"),
        "library": packages["library_fact"](library) if library else None,
        "cpu_isa": cpu_isa(),
        "cxx": os.path.basename(cxx) if cxx else None,
        "cxx_version": _cxx_version(cxx) if cxx else None,
        "threads": str(threads if threads > 0 else _default_threads()),
        "build_paths": build_paths(torch_dir) if torch_dir else None,
        "variables": json.dumps(_variables(os.environ), sort_keys=True),
        "device": "cpu",
        "capability": None,
        "sm_count": None,
        "driver": None,
    }
    if device != "cpu":
        facts.update(_beside("facts_gpu.py")["gpu"]())
    return facts


def main(argv: list[str]) -> int:
    """Print the facts as one line of JSON: ``[--device D] [--threads N] [--library NAME]``."""
    wanted = {"--device": "cpu", "--threads": "0", "--library": ""}
    for name, value in zip(argv[::2], argv[1::2], strict=False):
        if name not in wanted:
            sys.stderr.write("facts.py: unknown option " + name + "\n")
            return 2
        wanted[name] = value
    facts = gather(wanted["--device"], int(wanted["--threads"]), wanted["--library"])
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _beside(name: str) -> dict[str, Any]:
    """Run a file beside this one, which is itself run by its path and belongs to no package."""
    return runpy.run_path(os.path.join(os.path.dirname(os.path.abspath(__file__)), name))


# -- the C++ compiler


def _cxx() -> str | None:
    """Find the compiler that inductor picks (torch/_inductor/config.py ``cpp.cxx``)."""
    name = os.environ.get("CXX", "g++")
    folders = [""] if os.path.dirname(name) else os.get_exec_path()
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def _cxx_version(cxx: str) -> str | None:
    try:
        done = subprocess.run(
            [cxx, "--version"], capture_output=True, text=True, timeout=CXX_TIMEOUT_S, check=True
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.partition("\n")[0].strip() or None


def build_paths(torch_dir: str) -> str:
    """Digest the directories in the command that inductor hashes: another virtualenv misses."""
    paths = [
        sysconfig.get_path("include"),
        sysconfig.get_path("include", scheme="posix_prefix"),
        str(sysconfig.get_config_var("LIBDIR")),
        os.path.abspath(torch_dir),
    ]
    return hashlib.sha256("\0".join(paths).encode()).hexdigest()[:16]


# -- the processor


def cpu_isa() -> str:
    """Name the CPU's flags that torch asks for."""
    wanted = set(CPU_FLAGS.split())
    flags: set[str] = set()
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    flags = wanted.intersection(line.split())
                    break
    except OSError:
        return ""
    if "sve" in flags:
        import ctypes

        # Code is generated for one vector length: PR_SVE_GET_VL, bytes in the low 16 bits.
        length = ctypes.CDLL(None).prctl(51, 0, 0, 0, 0)
        if length > 0:
            flags.add("sve" + str((length & 0xFFFF) * 8))
    return ",".join(sorted(flags))


def _default_threads() -> int:
    """Foretell ``torch.get_num_threads()`` of a fresh process (aten/src/ATen/ParallelOpenMP.cpp).

    On x86 that is MKL's answer: MKL_NUM_THREADS, else OMP_NUM_THREADS, never more than the physical
    cores that the process may run on unless MKL_DYNAMIC is off. Elsewhere it is the variable, else
    all physical cores. Neither looks at a cgroup's CPU quota, only at the affinity a cpuset leaves.
    """
    mkl = os.uname().machine == "x86_64"
    cores = _physical_cores(os.sched_getaffinity(0) if mkl else None)
    asked = _leading_int("MKL_NUM_THREADS") or _leading_int("OMP_NUM_THREADS")
    dynamic = os.environ.get("MKL_DYNAMIC", "true").strip().lower() not in ("false", "0")
    if mkl and asked and dynamic:
        return min(asked, cores)
    return asked or cores


def _leading_int(name: str) -> int:
    """Read the number a variable begins with ("4,2": 4 on the outermost level), else 0."""
    digits = os.environ.get(name, "").split(",")[0].strip()
    return int(digits) if digits.isdecimal() else 0


def _physical_cores(cpus: set[int] | None) -> int:
    if cpus is None:
        cpus = set(range(os.cpu_count() or 1))
    cores = set()
    for cpu in cpus:
        place = "/sys/devices/system/cpu/cpu" + str(cpu) + "/topology/"
        try:
            with open(place + "physical_package_id") as package, open(place + "core_id") as core:
                cores.add((package.read().strip(), core.read().strip()))
        except OSError:
            cores.add(("cpu", str(cpu)))
    return max(1, len(cores))


# -- variables


def _variables(environ: os._Environ[str]) -> dict[str, str]:
    names, ignored = NAMES.split(), IGNORED.split()
    return {
        name: _without_path(value)
        for name, value in environ.items()
        if (name in names or name.startswith(PREFIXES))
        and name not in ignored
        and not any(word in name for word in IGNORED_WORDS)
    }


def _without_path(value: str) -> str:
    if not os.path.isabs(value):
        return value
    return os.path.basename(value) + " #" + hashlib.sha256(value.encode()).hexdigest()[:8]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""Fixtures of the store: real files, real SQLite, a tiny disk, and a user without rights."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from prewarm.store.database import Database
from prewarm.store.timestamp import timestamp

NOBODY = 65534


@pytest.fixture
def at() -> Callable[[float], str]:
    """Times as the store writes them: seconds after a fixed moment."""
    return lambda second: timestamp(1_800_000_000 + second)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def database(state_dir: Path) -> Iterator[Database]:
    with Database(state_dir / "prewarm.db") as opened:
        yield opened


@pytest.fixture
def unprivileged() -> Callable[[], AbstractContextManager[None]]:
    """Run a block as a user without rights, whoever runs the tests."""

    @contextmanager
    def as_nobody() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)

    return as_nobody


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user can reach (pytest's own are closed to others)."""
    path = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    path = tmp_path / "tiny"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "prewarm-test", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)


@pytest.fixture
def run_until_killed() -> Callable[[Callable[[], object], str, int], bool]:
    """Run work in a fork that is killed (-9) before its n-th line in a module; was it?"""

    def run(work: Callable[[], object], module_file: str, line: int) -> bool:
        child = os.fork()
        if child == 0:
            try:
                _kill_before_line(module_file, line)
                work()
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)

    return run


def _kill_before_line(module_file: str, line: int) -> None:
    import signal
    import sys
    from types import FrameType

    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> object:
        nonlocal seen
        if frame.f_code.co_filename != module_file:
            return None
        if event == "line":
            seen += 1
            if seen == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)  # type: ignore[arg-type]


@pytest.fixture
def record() -> Callable[..., dict[str, object]]:
    """A manifest entry without model and aliases, as the database keeps it."""

    def make(*, digit: str = "a", calls: int = 2, **others: object) -> dict[str, object]:
        return {
            "checkpoint": digit * 64,
            "architecture": "b" * 64,
            "environment": "0123456789abcdef",
            "build_key": "c" * 64,
            "status": "warm",
            "reason": None,
            "code": None,
            "requires": [],
            "covers": "any order",
            "bundle": {
                "sha256": digit * 64,
                "size_bytes": 25_046_248,
                "unpacked_bytes": 135_139_908,
                "files": 2519,
            },
            "compile": {
                "mode": "max-autotune",
                "asked_mode": "max-autotune",
                "dynamic": False,
                "recompile_limit": 8,
            },
            "variables": {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"},
            "shape_sets": [
                {
                    "name": "chat",
                    "status": "warm",
                    "reason": None,
                    "calls": [
                        {
                            "sizes": {"batch": number + 1, "seq": 128},
                            "cold_s": 12.3,
                            "warm_s": 1,
                            "eager_ms": 5.6,
                            "compiled_ms": None,
                            "graphs": 1,
                            "graph_breaks": ["call to print"],
                        }
                        for number in range(calls)
                    ],
                }
            ],
            "proof": {
                "fx_misses": 0,
                "benchmarked": None,
                "triton_compiled": "n/a",
                "calls": [{"sizes": {"batch": n}, "seconds": 1.25} for n in range(calls)],
                "proved_at": "2027-01-15T08:00:00.000Z",
                "proved_as": "0",
                "python": "3.11.7",
            },
            **others,
        }

    return make

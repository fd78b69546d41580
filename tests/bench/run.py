"""The speed and memory figures of the builder, its HTTP side and the hook, from one command.

With the machine named.

    python tests/bench/run.py [--out FILE] [--quick]

Each figure stands beside its limit. Seconds are of whole processes, medians of five; ratios are
within this run. ``--quick`` leaves out the two real builds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from serve import DOWNLOADS, answers, downloads

from prewarm import __version__
from prewarm.cli.demo_registry import write_demo_registry
from prewarm.present import present_environment
from prewarm.store.bundle import bundle_path, pack
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.manifest import build_manifest, write_manifest
from prewarm.store.reports import MOST_REPORTS
from prewarm.store.signing import load_or_create_key
from prewarm.store.start_summary import StartSummary
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

ROUNDS = 5
ENTRIES = 1_000
FILES, UNPACKED_BYTES = 2_500, 130_000_000
INPUT = {"dtype": "float32", "shape": ["batch", 64], "high": None, "low": None, "fill": None}
DECLARED = {
    "key": "k",
    "model": {},
    "compile": {"targets": ["."]},
    "shapes": [{"name": "chat", "inputs": {"x": INPUT}, "sizes": [{"batch": 1}]}],
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure and the limit it is held against."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.limit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prewarm-bench-") as root:
        figures = [*hook_figures(Path(root) / "hook"), *status_figures(Path(root) / "status")]
        figures += serve_figures(Path(root) / "serve")
        if not options.quick:
            figures += build_figures(Path(root) / "build")
    result = {"machine": machine(), "at": timestamp(time.time()), "figures": []}
    for figure in figures:
        mark = "ok  " if figure.holds else "OVER"
        print(
            f"{mark} {figure.name}: {figure.measured:.3f} {figure.unit} (at most {figure.limit:g})"
        )
    result["figures"] = [asdict(figure) | {"holds": figure.holds} for figure in figures]
    print(json.dumps(result["machine"]))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if all(figure.holds for figure in figures) else 1


def machine() -> dict[str, object]:
    """Name the machine and what ran."""
    cpu = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "transformers": _version("transformers"),
        "prewarm": __version__,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def hook_figures(root: Path) -> list[Figure]:
    """A hook that fills from a bundle of GPU size, and one whose directory is already right."""
    cache_dir, state_dir = root / "cache", root / "state"
    tree = root / "tree"
    numbers = random.Random(0)
    size = UNPACKED_BYTES // FILES
    for number in range(FILES):
        path = tree / "triton" / f"{number:04x}" / "kernel.cubin"
        path.parent.mkdir(parents=True)
        # Machine code: neither noise nor all alike.
        block = numbers.randbytes(size // 8)
        path.write_bytes(block * 8)
    packed = root / "bundle.tar.zst"
    info = pack(tree, packed)
    target = bundle_path(cache_dir, info.sha256)
    target.parent.mkdir(parents=True)
    packed.rename(target)
    environment = present_environment((), device="cpu", threads=0, library="")
    state_dir.mkdir(parents=True)
    with Database(state_dir / DATABASE_NAME) as database:
        add_entries(database, environment.id, environment.to_dict(), asdict(info), count=1)
        publish(database, cache_dir, state_dir)

    def hook(into: Path) -> tuple[float, float]:
        return timed(
            ["hook", "model-0000/v1", "--into", str(into), "--on-miss", "fail",
             "--cache-dir", str(cache_dir), "--env-file", str(root / "env")]
        )  # fmt: skip

    filled = [hook(root / f"private-{number}") for number in range(ROUNDS)]
    right = [hook(root / "private-0") for _ in range(ROUNDS)]
    return [
        Figure(f"hook, bundle of {FILES} files, 130 MB unpacked", median(filled), 1.0, "s"),
        Figure("hook, directory already right", median(right), 0.25, "s"),
        Figure("hook while it unpacks, resident", memory(filled), 120.0, "MB"),
    ]


def status_figures(root: Path) -> list[Figure]:
    """``prewarm status`` with a thousand entries."""
    root.mkdir(parents=True)
    with Database(root / DATABASE_NAME) as database:
        add_entries(database, "e" * 16, {"device": "cpu"}, {}, count=ENTRIES)
        add_starts(database, count=MOST_REPORTS)
    ran = [timed(["status", "--state-dir", str(root)]) for _ in range(ROUNDS)]
    return [
        Figure(f"status, {ENTRIES} entries, {MOST_REPORTS} starts", median(ran), 0.25, "s"),
        Figure("status, resident", memory(ran), 120.0, "MB"),
    ]


def serve_figures(root: Path) -> list[Figure]:
    """The server over a thousand entries and one bundle; it and the load share the cores."""
    cache_dir, state_dir = root / "cache", root / "state"
    state_dir.mkdir(parents=True)
    content = random.Random(0).randbytes(UNPACKED_BYTES)
    sha256 = hashlib.sha256(content).hexdigest()
    bundle_path(cache_dir, sha256).parent.mkdir(parents=True)
    bundle_path(cache_dir, sha256).write_bytes(content)
    with Database(state_dir / DATABASE_NAME) as database:
        add_entries(database, "e" * 16, {"device": "cpu"}, {}, count=ENTRIES)
        publish(database, cache_dir, state_dir)
    plain = answers(root, count=1_000)
    packed = answers(root, count=1_000, encoding="zstd")
    loaded = downloads(root, sha256)
    what, much = f"1,000 manifests of {ENTRIES} entries", f"{DOWNLOADS} downloads of 130 MB at once"
    return [
        Figure(f"{what}, 50 connections", plain.seconds, 2.0, "s"),
        Figure(f"{what}, 50 connections, zstd", packed.seconds, 2.0, "s"),
        Figure(f"{much}, all right", loaded.seconds, 120.0, "s"),
        Figure(f"{much}, the server grows by", loaded.peak_mb - loaded.before_mb, 50.0, "MB"),
        Figure("server, resident", max(plain.peak_mb, packed.peak_mb, loaded.peak_mb), 120.0, "MB"),
    ]


def publish(database: Database, cache_dir: Path, state_dir: Path) -> None:
    """Write the manifest as a scan does."""
    manifest = build_manifest(
        builder="bench",
        version=__version__,
        entries=database.entries(),
        checkpoints=database.checkpoints(),
        environments=database.environments(),
        at=timestamp(time.time()),
    )
    write_manifest(cache_dir, manifest, load_or_create_key(state_dir))


def build_figures(root: Path) -> list[Figure]:
    """Two real builds: the second checkpoint of an architecture against the first."""
    registry = root / "registry"
    write_demo_registry(registry)
    late = registry / "classifier" / "v2"
    late.rename(root / "v2")
    arguments = [
        "--registry",
        str(registry),
        "--cache-dir",
        str(root / "cache"),
        "--state-dir",
        str(root / "state"),
    ]
    time.sleep(2.1)  # the quiet time of a checkpoint is no part of a build's time
    built = timed(["scan", "classifier/v1", *arguments])
    with Database(root / "state" / DATABASE_NAME) as database:
        first = seconds_of(database, "classifier/v1")
    (root / "v2").rename(late)
    time.sleep(2.1)
    scanned = timed(["scan", "classifier/v2", *arguments])
    with Database(root / "state" / DATABASE_NAME) as database:
        second = seconds_of(database, "classifier/v2")
        entry = next(e for e in database.entries() if e.model == "classifier/v2")
        compiles = len(database.builds(entry.id))
    return [
        Figure("second checkpoint of an architecture / the first", second / first, 0.35, "ratio"),
        Figure("compile runs for the second", float(compiles), 0.0, "runs"),
        Figure("scan, resident without its children", memory([built, scanned]), 120.0, "MB"),
    ]


def seconds_of(database: Database, model: str) -> float:
    """Return the seconds from an entry's queueing to its rest, from the events."""
    from prewarm.store.timestamp import epoch_seconds

    events = sorted(database.events(model), key=lambda event: event.id)
    return epoch_seconds(events[-1].at) - epoch_seconds(events[0].at)


def add_entries(
    database: Database,
    environment_id: str,
    facts: dict[str, str | None],
    bundle: dict[str, object],
    *,
    count: int,
) -> None:
    """Record warm entries as a scan does."""
    at = timestamp(time.time())
    database.put_environment(environment_id, facts=facts, probe={}, fingerprint="bench", at=at)
    numbers = {name: bundle.get(name, 1) for name in ("size_bytes", "unpacked_bytes", "files")}
    call = {
        "sizes": {"batch": 1},
        "cold_s": 70.0,
        "warm_s": 3.0,
        "eager_ms": 5.0,
        "compiled_ms": 1.0,
        "graphs": 1,
        "graph_breaks": [],
    }
    for number in range(count):
        model = f"model-{number:04}/v1"
        digest = f"{number:064x}"
        sha256 = bundle.get("sha256", digest)
        record = {
            "checkpoint": digest, "architecture": digest, "environment": environment_id,
            "build_key": digest, "status": "warm", "reason": None, "code": None, "requires": [],
            "covers": "any order", "bundle": {"sha256": sha256, **numbers},
            "compile": {"mode": "max-autotune", "asked_mode": "max-autotune", "dynamic": False,
                        "recompile_limit": None},
            "variables": {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"},
            "shape_sets": [{"name": "chat", "status": "warm", "reason": None, "calls": [call]}],
            "proof": {"declared": DECLARED},
        }  # fmt: skip
        database.see_checkpoint(model, "checkpoint", digest=digest, architecture=digest, at=at)
        database.put_entry(
            model, environment_id, at=at, status=Status.WARM, checkpoint_digest=digest,
            architecture=digest, build_key=digest, bundle_sha256=str(sha256), record=record,
        )  # fmt: skip


def add_starts(database: Database, *, count: int) -> None:
    """Record starts as deployments report them; each compiled a size that nobody declared."""
    graph = {
        "outcome": "miss",
        "frame": {"name": "forward"},
        "inputs": [{"name": "x", "dtype": "float32", "shape": [3, 64]}],
    }
    report = {"fx_misses": 1, "graphs": [graph], "files": ["f" * 200] * 100}
    summary = StartSummary.of(report, ("fx_misses",))
    for number in range(count):
        database.add_report(
            f"model-{number % ENTRIES:04}/v1", "e" * 16, bundle_sha256="b" * 64, builder="bench",
            at=timestamp(time.time()), uid=0, first_answer_s=2.0, compiled=True, report=report,
            summary=summary,
        )  # fmt: skip


def timed(words: list[str]) -> tuple[float, float]:
    """Run prewarm; return its seconds and its own peak resident memory in MB (10**6 bytes)."""
    started_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak_kb = 0
    while process.poll() is None:
        peak_kb = max(peak_kb, _peak_kb(process.pid))
        time.sleep(0.005)
    seconds = time.perf_counter() - started_s
    stderr = process.stderr.read() if process.stderr else ""
    if process.returncode:
        raise SystemExit(f"prewarm {' '.join(words)} ended with {process.returncode}: {stderr}")
    return seconds, peak_kb * 1024 / 1e6


def _peak_kb(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def median(ran: list[tuple[float, float]]) -> float:
    """Return the median seconds."""
    return statistics.median(seconds for seconds, _ in ran)


def memory(ran: list[tuple[float, float]]) -> float:
    """Return the largest peak in MB."""
    return max(peak for _, peak in ran)


if __name__ == "__main__":
    raise SystemExit(main())

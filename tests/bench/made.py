"""What is published without being built: entries, starts, and a bundle of some size."""

from __future__ import annotations

import random
import time
from dataclasses import asdict
from pathlib import Path

from prewarm import __version__
from prewarm.present import present_environment
from prewarm.store.bundle import bundle_path, pack
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.manifest import build_manifest, write_manifest
from prewarm.store.signing import load_or_create_key
from prewarm.store.start_summary import StartSummary
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

ENTRIES = 1_000
INPUT = {"dtype": "float32", "shape": ["batch", 64], "high": None, "low": None, "fill": None}
DECLARED = {
    "key": "k",
    "model": {},
    "compile": {"targets": ["."]},
    "shapes": [{"name": "chat", "inputs": {"x": INPUT}, "sizes": [{"batch": 1}]}],
}


def publish_bundle(root: Path, *, files: int, unpacked_bytes: int, noise: float) -> str:
    """Publish one model with such a bundle for this machine below ``root``; return its digest.

    ``noise`` is the part of the content that packing makes no smaller: machine code is neither
    noise nor all alike.
    """
    cache_dir, state_dir, tree = root / "cache", root / "state", root / "tree"
    numbers = random.Random(0)
    size = unpacked_bytes // files
    for number in range(files):
        path = tree / "triton" / f"{number:04x}" / "kernel.cubin"
        path.parent.mkdir(parents=True)
        block = numbers.randbytes(max(1, int(size * noise)))
        path.write_bytes((block * (size // len(block) + 1))[:size])
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
    return info.sha256


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

"""The figures of the HTTP side: answers a second, and a hundred who want one bundle at once.

Server and load run on the same two cores. ``serve.py`` is the server's process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from bench.made import ENTRIES, add_entries, publish, publish_bundle
from bench.process import PREWARM
from bench.serve import CONNECTIONS, DOWNLOADS, Measured, answers, downloads, measured, serving

from prewarm.store.database import DATABASE_NAME, Database

ANSWERS = 1_000
HOOKS = 100
CORES = 2
#: Packed, and hardly more unpacked.
BUNDLE_BYTES, BUNDLE_FILES = 130_000_000, 100


def serve_figures(root: Path) -> list[Figure]:
    """Answer manifests of a thousand entries, then give one bundle to a hundred at once, twice."""
    many, one = root / "many", root / "one"
    (many / "state").mkdir(parents=True)
    with Database(many / "state" / DATABASE_NAME) as database:
        add_entries(database, "e" * 16, {"device": "cpu"}, {}, count=ENTRIES)
        publish(database, many / "cache", many / "state")
    sha256 = publish_bundle(one, files=BUNDLE_FILES, unpacked_bytes=BUNDLE_BYTES, noise=1.0)
    shutil.rmtree(one / "tree")
    with on_two_cores():
        plain = answers(many, count=ANSWERS)
        packed = answers(many, count=ANSWERS, encoding="zstd")
        loaded = downloads(one, sha256)
        hooked = hooks_at_once(one)
    what = f"full answers of a manifest of {ENTRIES:,} entries, {CONNECTIONS} connections"
    much, asked = f"{DOWNLOADS} downloads of 130 MB at once", f"{HOOKS} hooks for 130 MB at once"
    peak_mb = max(found.peak_mb for found in (plain, packed, loaded, hooked))
    return [
        Figure(what, ANSWERS / plain.seconds, 500.0, "/s", at_least=True),
        Figure(f"{what}, zstd", ANSWERS / packed.seconds, 500.0, "/s", at_least=True),
        Figure(f"{much}, all right", loaded.seconds, 120.0, "s"),
        Figure(f"{much}, the server grows by", loaded.peak_mb - loaded.before_mb, 50.0, "MB"),
        Figure(f"{asked}, all right", hooked.seconds, 180.0, "s"),
        Figure(f"{asked}, the server grows by", hooked.peak_mb - hooked.before_mb, 50.0, "MB"),
        Figure("server, resident", peak_mb, 120.0, "MB"),
    ]


def hooks_at_once(root: Path) -> Measured:
    """Let a hundred hooks, each of a user of its own, fetch, check and unpack one bundle over TCP.

    Hooks of one user would share one download.
    """
    with serving(root) as (pid, port):
        return measured(pid, lambda: _hooks(root, port))


def _hooks(root: Path, port: int) -> None:
    failed: list[str] = []

    def hook(number: int) -> None:
        into, home = root / f"private-{number}", root / f"home-{number}"
        done = subprocess.run(
            [*PREWARM, "hook", "model-0000/v1", "--into", str(into), "--on-miss", "fail",
             "--manifest", f"http://127.0.0.1:{port}", "--timeout", "300",
             "--trust", str(root / "state" / "signing.pub")],
            env=os.environ | {"XDG_CACHE_HOME": str(home)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        there = sum(path.stat().st_size for path in into.rglob("*.cubin")) if into.exists() else 0
        if done.returncode or there != BUNDLE_BYTES:
            failed.append(f"{done.returncode}, {there} bytes: {done.stderr}")
        for made in (into, home):
            shutil.rmtree(made, ignore_errors=True)

    threads = [threading.Thread(target=hook, args=(number,)) for number in range(HOOKS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise SystemExit(f"{len(failed)} of {HOOKS} hooks failed, the first with {failed[0]}")


@contextlib.contextmanager
def on_two_cores() -> Iterator[None]:
    """Let this process and what it starts run on two cores, however many there are."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:CORES])
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)

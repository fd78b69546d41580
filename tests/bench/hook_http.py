"""The hook over HTTP on loopback: fetch, check and unpack a bundle of GPU size; find all right."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure
from bench.made import publish_bundle
from bench.process import median, memory, timed
from bench.serve import serving

FILES = 2_500
UNPACKED_BYTES = 130_000_000
ROUNDS = 5


def hook_http_figures(root: Path) -> list[Figure]:
    """A hook that fetches and fills, each for a user of its own, and one with nothing to do."""
    publish_bundle(root, files=FILES, unpacked_bytes=UNPACKED_BYTES, noise=1 / 8)
    with serving(root) as (_, port):

        def hook(number: int) -> tuple[float, float]:
            with cache_home(root / f"home-{number}"):
                return timed(
                    ["hook", "model-0000/v1", "--into", str(root / f"private-{number}"),
                     "--manifest", f"http://127.0.0.1:{port}", "--on-miss", "fail",
                     "--trust", str(root / "state" / "signing.pub"),
                     "--env-file", str(root / "env")]
                )  # fmt: skip

        fetched = [hook(number) for number in range(ROUNDS)]
        right = [hook(0) for _ in range(ROUNDS)]
    return [
        Figure("hook over HTTP, bundle of 2,500 files, 130 MB unpacked", median(fetched), 1.5, "s"),
        Figure("hook over HTTP, directory already right", median(right), 0.5, "s"),
        Figure("hook over HTTP, resident", memory([*fetched, *right]), 120.0, "MB"),
    ]


@contextmanager
def cache_home(path: Path) -> Iterator[None]:
    """Give the processes of the block a cache directory of their own."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(path)
    try:
        yield
    finally:
        del os.environ["XDG_CACHE_HOME"]
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before

"""Row 17, many small files: one packed file, and only what a warm start opens.

Upstream: hf-mount, where fetching 5,520 files took longer than compiling.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from prewarm.store.bundle import bundle_path

FILES = 200


def files_below(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def read(opened: Opened) -> set[str]:
    """Return what was opened, less the mark that a hook leaves where it may write."""
    return {name for name in opened.end() if not name.startswith("leases/")}


def test_a_deployment_reads_the_manifest_and_one_file(shop, fault_row) -> None:
    shop.model("m1", small_files=FILES)
    assert shop.scan().all_warm
    cache_dir, entry = shop.settings.cache_dir, shop.entry("m1")
    bundle = bundle_path(cache_dir, entry.bundle_sha256)
    published = {"manifests/test.json", str(bundle.relative_to(cache_dir))}
    assert files_below(cache_dir) == published
    opened = Opened(cache_dir)

    code, line = shop.hook("m1", "--on-miss", "fail")

    assert (code, line) == (0, "")
    assert read(opened) == published
    tree = shop.root / "private" / entry.bundle_sha256[:32]
    assert len(list((tree / "inductor").rglob("kernel.so"))) == FILES
    again = Opened(cache_dir)
    assert shop.hook("m1", "--on-miss", "fail") == (0, "")
    assert read(again) == {"manifests/test.json"}
    fault_row(
        row=17,
        case=f"{FILES} small artifacts",
        alone=None,
        said=f"one bundle of {bundle.stat().st_size:,} bytes holds all "
        f"{entry.record['bundle']['files']} files; a hook reads it once, the next one not at all",
    )


def test_what_no_warm_start_opens_is_not_packed(shop, fault_row) -> None:
    shop.model("m1", small_files=10)
    shop.scan()
    entry = shop.entry("m1")

    shop.hook("m1")

    tree = shop.root / "private" / entry.bundle_sha256[:32]
    unpacked = files_below(tree / "inductor") | files_below(tree / "triton")
    left_about = {name for name in unpacked if "lock" in name or "tmp" in name}
    assert left_about == set()
    assert len(unpacked) == entry.record["bundle"]["files"]
    assert not list((tree / "inductor").rglob("locks"))
    fault_row(
        row=17,
        case="locks and temporary files between the artifacts",
        alone=None,
        said=f"40 of {40 + len(unpacked)} files were left out of the bundle",
    )


def test_equal_contents_cost_their_room_once(shop, fault_row) -> None:
    one_bytes, twins = 200_000, 30
    shop.model("m1", bulk_bytes=one_bytes, twins=twins)
    shop.scan()
    bundle = shop.entry("m1").record["bundle"]
    assert bundle["unpacked_bytes"] > one_bytes * (twins + 1)
    assert bundle["size_bytes"] < 1.2 * one_bytes
    fault_row(
        row=17,
        case=f"the same {one_bytes:,} random bytes in {twins + 1} files",
        alone=None,
        said=f"{bundle['unpacked_bytes']:,} bytes are packed into {bundle['size_bytes']:,}",
    )


class Opened:
    """Hears which files below a directory this process opens, until ``end``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._paths: set[str] | None = set()
        # An audit hook stays for good; this one hears nothing after ``end``.
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and self._paths is not None and isinstance(arguments[0], str | bytes):
            self._paths.add(os.fsdecode(arguments[0]))

    def end(self) -> set[str]:
        heard, self._paths = self._paths or set(), None
        paths = [Path(path) for path in heard]
        below = (path for path in paths if self._directory in path.parents)
        return {str(path.relative_to(self._directory)) for path in below if path.is_file()}

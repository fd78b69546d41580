"""Row 8, damaged artifacts: refused before unpacking, set aside, built again, and told.

Upstream: vllm #35061, edutelligence #579.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.build.step import Step
from prewarm.store.bundle import bundle_path
from prewarm.store.quarantine import read_quarantine
from prewarm.store.status import Status


def flip_a_byte(bundle: Path, _: Path) -> None:
    with bundle.open("r+b") as file:
        file.seek(bundle.stat().st_size // 2)
        [byte] = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def cut_in_half(bundle: Path, _: Path) -> None:
    os.truncate(bundle, bundle.stat().st_size // 2)


def empty(bundle: Path, _: Path) -> None:
    os.truncate(bundle, 0)


def replace(bundle: Path, other: Path) -> None:
    shutil.copy(other, bundle)


def put_a_directory(bundle: Path, _: Path) -> None:
    bundle.unlink()
    bundle.mkdir()
    (bundle / "file").touch()


def remove(bundle: Path, _: Path) -> None:
    bundle.unlink()


#: Each with what is told while the entry waits, and how many bundles are kept for inspection.
CASES = [
    ("a byte flipped in the bundle", flip_a_byte, "its bundle is damaged (sha256 ", 1),
    ("the bundle cut in half", cut_in_half, "its bundle has ", 1),
    ("the bundle emptied", empty, "its bundle has 0 bytes, not ", 1),
    ("another valid bundle in its place", replace, "its bundle ", 1),
    ("a directory in its place", put_a_directory, "its bundle is no file", 1),
    ("the bundle gone", remove, "its bundle is missing", 0),
]


@pytest.mark.parametrize(
    ("case", "damage", "told", "kept"), CASES, ids=[case[1].__name__ for case in CASES]
)
def test_it_is_refused_told_set_aside_and_built_again(
    shop, fault_row, case: str, damage: Callable[[Path, Path], None], told: str, kept: int
) -> None:
    shop.model("m1", graph="one")
    shop.model("m2", b"other weights", graph="two")
    shop.scan()
    bundle, other = (
        bundle_path(shop.settings.cache_dir, shop.entry(model).bundle_sha256)
        for model in ("m1", "m2")
    )
    damage(bundle, other)

    # A deployment: nothing is unpacked, and it is told who mends it.
    code, line = shop.hook("m1", "--on-miss", "fail")
    assert code == 3, line
    assert line.startswith("prewarm: error: ")
    assert line.endswith("; the builder builds it again with its next `prewarm scan`\n")
    assert line.count("\n") == 1
    code, line = shop.hook("m1")
    assert code == 0
    assert line.startswith("prewarm: warning: ")
    assert line.endswith("; starting cold\n")
    assert not list((shop.root / "private").rglob("inductor"))

    # The builder: it leaves the manifest before it is built again, with its reason.
    waiting = []

    def look(step: Step) -> None:
        if step.what == "begin":
            waiting.append((shop.entry("m1"), shop.manifest()["entries"]))

    shop.steps = Telling(look)
    assert shop.scan().all_warm
    [(entry, published)] = waiting
    assert (entry.status, entry.code) == (Status.QUEUED, "quarantined")
    assert entry.reason.startswith(told)
    assert [found["model"] for found in published] == ["m2"]
    assert read_quarantine(shop.settings.state_dir).bundles == kept
    assert shop.builds("m1") == ["compiled"] * 2
    code, line = shop.hook("m1", "--on-miss", "fail")
    assert (code, line) == (0, "")

    # And it rests by its new proof.
    for _ in range(2):
        assert shop.scan().all_warm
    assert shop.builds("m1") == ["compiled"] * 2
    assert shop.builds("m2") == ["compiled"]
    fault_row(row=8, case=case, alone=None, said=f"queued, {entry.code}: {entry.reason}")


class Telling(list):
    """A list of steps that tells each one on."""

    def __init__(self, told: Callable[[Step], None]) -> None:
        super().__init__()
        self._told = told

    def append(self, step: Step) -> None:
        super().append(step)
        self._told(step)

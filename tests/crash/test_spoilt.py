"""The harness can fail: copies of prewarm with one line of care taken out are found out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import prewarm

from .arena import Arena
from .injector import Action, Fault
from .rounds import Rounds
from .tally import Tally
from .test_short import BUNDLE, MANIFEST

PARTS = "cache/manifests/#"


@dataclass(frozen=True)
class Spoilt:
    """What is changed in which file, the fault that shows it, and what the harness says."""

    file: str
    before: str
    after: str
    fault: Fault
    told: str


SPOILT = {
    "manifests are written in place": Spoilt(
        "store/whole_file.py",
        "    with whole_file(path, mode=mode, needed_bytes=len(data)) as file:\n",
        "    with path.open('wb') as file:\n",
        Fault(Action.KILL_TORN, op="write", path=MANIFEST, skip=1),
        "is no JSON",
    ),
    "files are not synced before they get their name": Spoilt(
        "store/whole_file.py",
        "                os.fsync(file.fileno())\n                if not _is_linked",
        "                if not _is_linked",
        Fault(Action.CUT_AFTER, op="fsync", path="cache/manifests", skip=1),
        "is no JSON",
    ),
    "a bundle is copied to its name": Spoilt(
        "store/whole_file.py",
        "            source.rename(target)\n",
        "            shutil.copyfile(source, target)\n",
        Fault(Action.KILL_TORN, op="write", path=BUNDLE),
        "is not what it is called",
    ),
    "the directory of a bundle is not synced": Spoilt(
        "store/whole_file.py",
        "            _sync_directory(target.parent)\n            return\n",
        "            return\n",
        Fault(Action.CUT_AFTER, op="fsync", path="cache/manifests", skip=1),
        "is missing, but",
    ),
    "a manifest is ahead of the database": Spoilt(
        "build/publish.py",
        "    database.make_lasting()\n",
        "",
        Fault(Action.CUT_AFTER, op="fsync", path="cache/manifests", skip=1),
        "published once and no more",
    ),
    "a bundle is recorded before it is there": Spoilt(
        "build/resting.py",
        "        publish_file(packed, target)\n",
        "        import threading; threading.Timer(1.0, publish_file, (packed, target)).start()\n",
        Fault(Action.KILL_AFTER, op="rename", path=MANIFEST, skip=1),
        "is missing, but",
    ),
}

#: In every run; the others are nightly.
IN_CI = ("files are not synced before they get their name",)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "name",
    [name if name in IN_CI else pytest.param(name, marks=pytest.mark.nightly) for name in SPOILT],
)
def test_a_spoilt_copy_is_found_out(
    make_arena: Callable[..., Arena], tmp_path: Path, name: str
) -> None:
    spoilt = SPOILT[name]
    package = tmp_path / "package"
    shutil.copytree(
        Path(prewarm.__file__).parent, package / "prewarm",
        ignore=shutil.ignore_patterns("__pycache__"),
    )  # fmt: skip
    file = package / "prewarm" / spoilt.file
    text = file.read_text()
    assert text.count(spoilt.before) == 1, "what is taken out is not there any more"
    file.write_text(text.replace(spoilt.before, spoilt.after))
    rounds = Rounds(make_arena(package=package), Tally())
    with pytest.raises(Exception, match=spoilt.told):
        rounds.at_start("spoilt", spoilt.fault)
    assert rounds.arena.injector.fired, "the fault was reached"

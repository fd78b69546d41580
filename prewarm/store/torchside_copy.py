"""The copy of ``torchside`` that runs elsewhere: in a container, as another user.

A copy, since the builder's site-packages must not be on the path of somebody else's Python. Its
layout is ``prewarm_torchside/*.py`` beside a ``sitecustomize.py``, so that the directory itself
goes on ``PYTHONPATH``.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from prewarm.present import TORCHSIDE


def torchside_digest() -> str:
    """Return the digest of the files that are copied (16 hex digits)."""
    digest = hashlib.sha256()
    for file in _sources():
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def copy_torchside(into: Path) -> None:
    """Write the copy to ``into``, readable by everybody whatever the umask.

    ``into`` must not exist.
    """
    package = into / "prewarm_torchside"
    for directory in (into, package):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    for file in _sources():
        shutil.copyfile(file, package / file.name)
        (package / file.name).chmod(0o644)
    (package / "sitecustomize.py").replace(into / "sitecustomize.py")


def _sources() -> list[Path]:
    return sorted(TORCHSIDE.glob("*.py"))

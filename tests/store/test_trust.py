"""Trust in a local directory: its owner, its mode, and the command that mends it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from prewarm.errors import ManifestUnavailable
from prewarm.store.trust import distrust, require_trusted


@pytest.mark.parametrize("mode", [0o755, 0o700, 0o750, 0o555])
def test_what_only_its_owner_can_write_is_trusted(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)

    assert distrust(tmp_path, uid=os.getuid()) is None


@pytest.mark.parametrize(("mode", "who"), [(0o775, "its group"), (0o777, "everybody")])
def test_what_others_can_write_is_not_and_the_command_mends_it(
    tmp_path: Path, mode: int, who: str
) -> None:
    path = tmp_path / "a b"
    path.mkdir()
    path.chmod(mode)

    found = distrust(path, uid=os.getuid())

    assert found is not None
    assert who in found.sentence()
    assert os.system(found.remedy) == 0
    assert distrust(path, uid=os.getuid()) is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_what_belongs_to_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, -1)

    found = distrust(tmp_path, uid=4321)

    assert found is not None
    assert "belongs to user 1234" in found.why
    assert distrust(tmp_path, uid=1234) is None


def test_a_missing_directory_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ManifestUnavailable, match="is not there; name the builder's cache"):
        require_trusted((tmp_path / "nope",), uid=os.getuid())

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.store.gone import gone_files


def test_files_and_whole_checkpoints_that_were_removed_are_gone(tmp_path: Path) -> None:
    kept = tmp_path / "registry" / "kept" / "w.bin"
    kept.parent.mkdir(parents=True)
    kept.touch()
    beside, below = kept.with_name("old.bin"), tmp_path / "registry" / "v1" / "deep" / "w.bin"
    assert gone_files(map(str, (kept, beside, below))) == (str(beside), str(below))


def test_a_link_that_leads_nowhere_is_not_gone(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert gone_files([str(link)]) == ()


def test_an_empty_directory_may_be_a_disk_that_is_not_mounted(tmp_path: Path) -> None:
    (tmp_path / "mnt").mkdir()
    paths = [str(tmp_path / "mnt" / name) for name in ("w.bin", "v1/w.bin")]
    assert gone_files(paths) == ()
    (tmp_path / "mnt" / "other").touch()
    assert gone_files(paths) == tuple(paths)


def test_a_directory_that_cannot_be_read_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(path: object) -> None:
        raise PermissionError(13, "closed", str(path))

    monkeypatch.setattr("prewarm.store.gone.os.scandir", away)
    assert gone_files([str(tmp_path / "w.bin")]) == ()
    monkeypatch.setattr("prewarm.store.gone.os.lstat", away)
    assert gone_files([str(tmp_path / "w.bin")]) == ()

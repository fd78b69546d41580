from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.store.house_note import NAME, HouseNote, read_house_note, write_house_note


@pytest.mark.parametrize("problem", [None, "all are in use"])
def test_what_was_written_is_read(tmp_path: Path, problem: str | None) -> None:
    assert read_house_note(tmp_path) is None
    note = HouseNote("2027-01-15T08:00:00.000Z", 12, 10, problem)
    write_house_note(tmp_path, note)
    assert read_house_note(tmp_path) == note


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"at": 1, "bundle_bytes": "x"}', b"\xff"])
def test_a_note_that_cannot_be_read_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert read_house_note(tmp_path) is None

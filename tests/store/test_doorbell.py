from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.errors import NotWritable
from prewarm.store.doorbell import Bell, Doorbell


@pytest.mark.parametrize("bell", list(Bell))
def test_a_ring_is_answered_once_however_often_it_rang(tmp_path: Path, bell: Bell) -> None:
    door = Doorbell(tmp_path)
    assert not door.answer(bell)
    door.ring(bell)
    door.ring(bell)
    assert [other for other in Bell if Doorbell(tmp_path).answer(other)] == [bell]
    assert not door.answer(bell)
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(NotWritable, match="ring-look"):
        Doorbell(tmp_path / "state").ring(Bell.LOOK)
    assert not Doorbell(tmp_path / "state").answer(Bell.LOOK)

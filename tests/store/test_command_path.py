"""A directory in which torch cannot compile is refused by the character in its path."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.errors import ConfigError
from prewarm.store.command_path import require_command_path


@pytest.mark.parametrize("name", ["with space", "tab\there", "it's", 'a"b', "back\\slash"])
def test_what_parts_words_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="--into"):
        require_command_path(Path("/srv") / name / "deep", flag="--into")


@pytest.mark.parametrize("name", ["plain", "München", "a,b;c=$d(1)&2#3", "sp\u00e4ter"])
def test_anything_else_passes(name: str) -> None:
    require_command_path(Path("/srv") / name, flag="--into")

from __future__ import annotations

import pytest

from prewarm.errors import ConfigError
from prewarm.registry import source
from prewarm.registry.source import source_files


def test_names_are_relative_and_in_order(registry):
    for name in ("b.py", "a/c.py", "a/d.so", "a/e.txt", ".x.py", ".git/y.py"):
        registry.write(f"src/{name}", name)
    listed = list(source_files(registry.root / "src", label="prewarm.toml"))
    assert listed == [("b.py", b"b.py"), ("a/c.py", b"a/c.py"), ("a/d.so", b"a/d.so")]


def test_a_whole_environment_by_mistake(registry, monkeypatch):
    monkeypatch.setattr(source, "MAX_FILES", 3)
    for number in range(5):
        registry.write(f"src/{number}.py")
    with pytest.raises(ConfigError, match=r"prewarm\.toml: \[model\] path: over 3 source files"):
        list(source_files(registry.root / "src", label="prewarm.toml"))


def test_a_broken_link_is_told(registry):
    registry.link("src/a.py", "nowhere.py")
    with pytest.raises(ConfigError, match=r"a\.py cannot be read \(No such file or directory\)"):
        list(source_files(registry.root / "src", label="prewarm.toml"))

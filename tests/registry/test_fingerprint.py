"""The fingerprint of a checkpoint's surroundings: equal while nothing that counts changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.registry.fingerprint import (
    MAX_NAMED,
    Fingerprint,
    checkpoint_at,
    declarations_digest,
    look_again,
    take_fingerprint,
)

DECLARATION = '[model]\nloader = "python"\nfactory = "a:b"\npath = ["src"]\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "net" / "v1").mkdir(parents=True)
    (tmp_path / "net" / "src").mkdir()
    (tmp_path / "prewarm.toml").write_text('[registry]\nexclude = ["**/optimizer*"]\n')
    (tmp_path / "net" / "prewarm.toml").write_text(DECLARATION)
    (tmp_path / "net" / "src" / "a.py").write_text("one\n")
    (tmp_path / "net" / "v1" / "config.json").write_text("{}")
    (tmp_path / "net" / "v1" / "modeling.py").write_text("two\n")
    (tmp_path / "net" / "v1" / "w.bin").write_bytes(b"weights")
    return tmp_path


def taken(root: Path) -> Fingerprint:
    return take_fingerprint(
        checkpoint_at(root / "net" / "v1", root=root),
        root=root,
        file=root / "net" / "prewarm.toml",
        source_directories=[root / "net" / "src"],
    )


def test_a_second_look_without_parsing_gives_the_same(root: Path) -> None:
    found = taken(root)

    assert look_again(found, root=root) == found
    assert (found.place, found.file) == ("net/v1", "net/prewarm.toml")
    assert set(found.source) == {"a.py", "checkpoint/modeling.py"}
    assert set(found.configs) == {"config.json"}
    assert (found.files, found.size_bytes) == (3, 13)
    assert Fingerprint.from_dict(found.to_dict()) == found


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (lambda root: (root / "net/src/a.py").write_text("1ne\n"), {"source"}),
        (lambda root: (root / "net/src/b.py").write_text(""), {"source"}),
        (lambda root: (root / "net/v1/modeling.py").write_text("2wo\n"), {"source"}),
        (lambda root: (root / "net/v1/config.json").write_text("[]"), {"configs"}),
        (lambda root: (root / "net/v1/w.bin").write_bytes(b"weigh"), {"listing", "size_bytes"}),
        (lambda root: (root / "net/v1/w.bin").rename(root / "net/v1/x.bin"), {"listing"}),
        (lambda root: (root / "net/v1/w.bin").write_bytes(b"WEIGHTS"), set()),
        (lambda root: (root / "net/v1/optimizer.bin").write_bytes(b"o"), set()),
        (lambda root: (root / "net/src/notes.txt").write_text("n"), set()),
    ],
)  # fmt: skip
def test_only_what_changed_differs(
    root: Path, change: Callable[[Path], object], fields: set[str]
) -> None:
    before = taken(root)

    change(root)

    after = look_again(before, root=root)
    names = Fingerprint.__slots__
    assert {name for name in names if getattr(before, name) != getattr(after, name)} == fields


@pytest.mark.parametrize("file", ["prewarm.toml", "net/prewarm.toml", "net/v1/prewarm.toml"])
def test_every_declaration_file_that_could_cover_it_counts(root: Path, file: str) -> None:
    before = declarations_digest(root / "net" / "v1", root=root)

    with (root / file).open("a") as stream:
        stream.write("\n")

    assert declarations_digest(root / "net" / "v1", root=root) != before


def test_a_declaration_elsewhere_does_not_count(root: Path) -> None:
    before = declarations_digest(root / "net" / "v1", root=root)

    (root / "net" / "src" / "prewarm.toml").write_text("")

    assert declarations_digest(root / "net" / "v1", root=root) == before


def test_many_files_of_source_are_one_digest(root: Path) -> None:
    for number in range(MAX_NAMED + 1):
        (root / "net" / "src" / f"m{number}.py").write_text(str(number))
    before = taken(root)

    (root / "net" / "src" / "m1.py").write_text("other")

    assert len(before.source) == 1
    assert look_again(before, root=root) != before


@pytest.mark.parametrize("place", ["/etc", "../outside", "a/../../b", 3, None])
def test_a_place_outside_the_registry_is_no_fingerprint(root: Path, place: object) -> None:
    recorded = taken(root).to_dict()

    assert Fingerprint.from_dict(recorded | {"place": place}) is None
    assert Fingerprint.from_dict(recorded | {"another": 1}) is None
    assert Fingerprint.from_dict(None) is None

"""Triton's group files name their artifacts where the tree lies, whatever stood in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prewarm.store.triton_groups import point_groups

HASH = "2FMMYGOLXN3JZQ"
GROUP = f"triton/{HASH}/__grp__kernel.json"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree" / "triton" / HASH
    folder.mkdir(parents=True)
    for name in ("kernel.cubin", "kernel.json"):
        (folder / name).write_text(name)
    put(tmp_path / "tree", {name: f"/build/triton/{HASH}/{name}" for name in children(folder)})
    return tmp_path / "tree"


def children(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(tree: Path, paths: object) -> None:
    (tree / GROUP).write_text(json.dumps({"child_paths": paths}))


def paths_of(tree: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((tree / GROUP).read_text())["child_paths"]
    return found


def test_artifacts_are_named_where_the_tree_will_lie(tree: Path, tmp_path: Path) -> None:
    place = tmp_path / "place"
    assert point_groups(tree, place) == (GROUP,)
    tree.rename(place)
    assert paths_of(place) == {
        name: str(place / "triton" / HASH / name) for name in ("kernel.cubin", "kernel.json")
    }
    assert all(Path(path).is_file() for path in paths_of(place).values())


def test_what_is_right_is_not_written_again(tree: Path) -> None:
    point_groups(tree, tree)
    assert point_groups(tree, tree) == ()


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "a/../../b"])
def test_no_path_leads_out_of_the_kernels_folder(tree: Path, name: str) -> None:
    put(tree, {"kernel.cubin": name})
    point_groups(tree, tree)
    assert Path(paths_of(tree)["kernel.cubin"]).parent == tree / "triton" / HASH


@pytest.mark.parametrize(
    "text", ["", "no json", "[]", '{"child_paths": 1}', '{"child_paths": {"a": 1}}', "[" * 100_000]
)
def test_what_is_no_group_is_left_as_it_is(tree: Path, text: str) -> None:
    (tree / GROUP).write_text(text)
    assert point_groups(tree, tree / "elsewhere") == ()
    assert (tree / GROUP).read_text() == text


def test_a_tree_without_kernels_has_no_groups(tmp_path: Path) -> None:
    assert point_groups(tmp_path, tmp_path) == ()

"""What a deployment added to its caches: everything that the listing does not name, but locks."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.deploy.added_files import Added, added_files
from prewarm.deploy.listing import Listing, written


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("inductor/aa/one.py", "inductor/aa/kernel.so", "triton/k/one.cubin", "shim/s.py"):
        write(tmp_path, name)
    return tmp_path


def write(tree: Path, name: str, data: bytes = b"12345") -> None:
    (tree / name).parent.mkdir(parents=True, exist_ok=True)
    (tree / name).write_bytes(data)


def listing(tree: Path) -> Listing:
    files = {
        path.relative_to(tree).as_posix(): written(path)
        for path in tree.rglob("*")
        if path.is_file()
    }
    return Listing(("b",), "t", files)


def test_nothing_was_added_to_what_is_listed(tree: Path) -> None:
    assert added_files(tree, listing(tree)) == Added(0, 0, {}, 0)


def test_locks_and_python_s_own_caches_are_no_files_of_a_compile(tree: Path) -> None:
    before = listing(tree)
    for name in ("inductor/locks/a.lock", "inductor/aa/b.lock", "inductor/aa/__pycache__/c.pyc"):
        write(tree, name)
    write(tree, "shim/prewarm_torchside/new.py")
    assert added_files(tree, before).files == 0


def test_added_files_are_counted_by_kind(tree: Path) -> None:
    before = listing(tree)
    for name in (
        "inductor/fxgraph/ab/key/one", "inductor/aotautograd/key/one", "inductor/cd/k.main.so",
        "inductor/cd/k.main.cpp", "triton/k/two.cubin", "triton/k/two.json",
        "inductor/ef/x.best_config",
    ):  # fmt: skip
        write(tree, name)
    assert added_files(tree, before) == Added(
        files=7,
        size_bytes=35,
        kinds={
            "graphs": 1, "aot_entries": 1, "cpp_kernels": 1, "triton_kernels": 1,
            "tuned_configs": 1, "other": 2,
        },
        changed=0,
    )  # fmt: skip


def test_listed_files_that_changed_are_counted_apart(tree: Path) -> None:
    before = listing(tree)
    write(tree, "inductor/aa/one.py", b"other content")
    write(tree, "shim/s.py", b"other content")
    (tree / "triton/k/one.cubin").unlink()
    assert added_files(tree, before) == Added(0, 0, {}, changed=2)

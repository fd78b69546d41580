"""What must hold of a deployment's private directory after every fault of a hook.

Compared with the bundle itself, not with the listing that the hook wrote.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from prewarm.store.bundle import bundle_path, unpack
from prewarm.store.manifest import manifest_path, read_manifest

from .arena import Arena


def hooked_whole(arena: Arena, into: Path, *, name: str | None = None) -> None:
    """Check that what ``env.json`` points at is a whole tree; of the model ``name`` after a hook.

    After a hook without faults nothing of an earlier one is left about either.
    """
    path = into / "env.json"
    if not path.exists():
        assert name is None, "the hook left no env.json"
        return
    told = json.loads(path.read_text())
    trees = {value.partition("/")[0] for value in told["caches"].values()}
    assert len(trees) == 1, trees
    tree = into / trees.pop()
    (entry,) = told["entries"]
    sha256 = entry["bundle"]["sha256"]
    if name is not None:
        found = read_manifest(manifest_path(arena.cache_dir, "test")).manifest
        (published,) = [one for one in found.entries if one.model == name]
        assert published.bundle.sha256 == sha256
    packed = bundle_path(arena.cache_dir, sha256)
    with tempfile.TemporaryDirectory() as directory:
        fresh = Path(directory) / "in"
        listed = unpack(packed, fresh, sha256=sha256, size_bytes=entry["bundle"]["size_bytes"])
        for file in listed:
            there = tree / file.name
            assert there.is_file(), f"{there} is missing"
            assert there.read_bytes() == (fresh / file.name).read_bytes(), f"{there} is wrong"
    assert (tree / "shim" / "sitecustomize.py").is_file()
    assert (tree / "triton").is_dir()
    json.loads((tree / "listing.json").read_text())
    if name is None:
        return
    env = (into / "env").read_text()
    assert f'TORCHINDUCTOR_CACHE_DIR="{tree}/inductor"' in env
    assert (into / "shim").readlink() == Path(tree.name) / "shim"
    hidden = {path.name for path in tree.iterdir() if path.name.startswith(".")}
    assert not hidden, f"left about in the tree: {hidden}"
    age_leftovers(into)


def age_leftovers(into: Path) -> None:
    """Make what is on its way in a private directory look long dead, for the hook after the next.

    A link or file that a killed hook left there is removed once it is an hour old.
    """
    for path in into.iterdir():
        if path.name.startswith((".prewarm-", ".shim-")):
            found = path.lstat().st_mtime - 7200
            os.utime(path, (found, found), follow_symlinks=False)


def leftovers(into: Path) -> set[str]:
    """Return the hidden names of a private directory that are on their way."""
    names = {path.name for path in into.iterdir()}
    return {name for name in names if name.startswith((".prewarm-", ".shim-", ".filling-"))}

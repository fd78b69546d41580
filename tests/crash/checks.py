"""What must hold after every fault, and what must hold once the work has ended.

Owns the witness of one place: it remembers the last manifest it saw and each bundle that was ever
published. It looks at copies, so that looking changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from prewarm.store.bundle import bundle_path, unpack
from prewarm.store.manifest import ReadManifest, manifest_path, read_manifest
from prewarm.store.signing import load_or_create_key
from prewarm.store.whole_file import is_part

from .arena import Arena

_BUNDLE = re.compile(r"[0-9a-f]{64}\.tar\.zst")


class Witness:
    """Looks at one place again and again; ``collects`` where bundles may go by rule."""

    def __init__(self, arena: Arena, *, collects: bool = False) -> None:
        self._arena = arena
        self._collects = collects
        self._seen: ReadManifest | None = None
        self._named: dict[str, int] = {}
        self._good: dict[tuple[str, int, int], bool] = {}
        self._parts: set[Path] = set()
        self._proves_again = False

    def state_is_lost(self) -> None:
        """Let what is published leave until the work is done: nothing is warm by adoption."""
        self._proves_again = True

    def watch(self) -> None:
        """Look at the manifest alone, while work goes on: nothing leaves it meanwhile."""
        self._manifest()

    # -- after every fault

    def look(self) -> None:
        """Check what must hold at every moment, whoever was killed where."""
        arena = self._arena
        rows = self._database()
        manifest = self._manifest()
        for row in rows:
            if row["status"] in ("warm", "partial"):
                told = json.loads(row["record"])["bundle"]
                assert told["sha256"] == row["bundle_sha256"], row["model"]
                self._require_whole(told, f"{row['model']} is {row['status']} in the database")
        for entry in manifest.manifest.entries if manifest else ():
            assert entry.status in ("warm", "partial")
            bundle = entry.bundle
            told = {"sha256": bundle.sha256, "size_bytes": bundle.size_bytes}
            self._require_whole(told, f"{entry.model} is {entry.status} in the manifest")
            self._named[bundle.sha256] = bundle.size_bytes
        if not self._collects:
            for sha256, size_bytes in self._named.items():
                told = {"sha256": sha256, "size_bytes": size_bytes}
                self._require_whole(told, "it was published once")
        for path in (arena.cache_dir / "bundles").rglob("*"):
            if path.is_file() and not is_part(path.name):
                assert _BUNDLE.fullmatch(path.name), f"{path} is no bundle"
                assert self._is_whole(path, path.name[:64]), f"{path} is not what it is called"

    def _database(self) -> list[dict[str, Any]]:
        """Open the database; that of a dead process as a copy, as the next would find it."""
        source = self._arena.state_dir / "prewarm.db"
        if not source.exists():
            return []
        if self._arena.alive:
            return _entries(source)
        with tempfile.TemporaryDirectory() as directory:
            copy = Path(directory) / source.name
            for suffix in ("", "-wal", "-journal"):
                if Path(f"{source}{suffix}").exists():
                    shutil.copyfile(f"{source}{suffix}", f"{copy}{suffix}")
            return _entries(copy)

    def _manifest(self) -> ReadManifest | None:
        arena, before = self._arena, self._seen
        path = manifest_path(arena.cache_dir, "test")
        if not path.exists():
            assert before is None, "the manifest is gone"
            return None
        found = read_manifest(path)
        key = load_or_create_key(arena.state_dir, None)
        assert found.signed_by([key.public]), "the manifest is not signed by the builder's key"
        if before is not None:
            if not self._proves_again:
                self._require_kept(before, found)
            now, then = found.manifest.generation, before.manifest.generation
            assert now >= then, f"the generation went from {then} back to {now}"
            assert now > then or found.signed == before.signed, "another manifest, no generation"
        self._seen = found
        return found

    def _require_kept(self, before: ReadManifest, now: ReadManifest) -> None:
        """What was published stays published for as long as its checkpoint is there."""
        then, there = _models(before), _models(now)
        lost = (then - there) & self._arena.models
        assert not lost, f"published once and no more: {sorted(lost)}"

    def _require_whole(self, told: dict[str, Any], why: str) -> None:
        path = bundle_path(self._arena.cache_dir, told["sha256"])
        assert path.is_file(), f"{path} is missing, but {why}"
        assert path.stat().st_size == told["size_bytes"], f"{path} has another length, but {why}"
        assert self._is_whole(path, told["sha256"]), f"{path} is damaged, but {why}"

    def _is_whole(self, path: Path, sha256: str) -> bool:
        found = path.stat()
        key = (str(path), found.st_ino, found.st_mtime_ns)
        if key not in self._good:
            good = hashlib.sha256(path.read_bytes()).hexdigest() == sha256
            if good:
                with tempfile.TemporaryDirectory() as directory:
                    into = Path(directory) / "in"
                    unpack(path, into, sha256=sha256, size_bytes=found.st_size)
            self._good[key] = good
        return self._good[key]

    # -- once the work has ended

    def look_at_rest(self) -> None:
        """Check what must hold once a run without faults has done all work."""
        self.look()
        self._proves_again = False
        arena = self._arena
        arena.until(lambda: not arena.children(), "the end of all children")
        arena.until(lambda: not self._scratch(), f"empty scratch ({self._scratch()})")
        with closing(sqlite3.connect(arena.state_dir / "prewarm.db")) as database:
            working = database.execute(
                "SELECT model, status FROM entries WHERE lease IS NOT NULL"
                " OR status IN ('building', 'proving', 'queued', 'settling')"
            ).fetchall()
            assert not working, working
            assert not database.execute("SELECT 1 FROM builds WHERE ended_at IS NULL").fetchall()
            attempts = database.execute(
                "SELECT model, attempts, next_try_at FROM entries"
                " WHERE status = 'warm' AND (attempts != 0 OR next_try_at IS NOT NULL)"
            ).fetchall()
            assert not attempts, attempts
        self._leftovers()

    def failures(self) -> list[tuple[str, str]]:
        """Return model and code of each attempt that was counted as an entry's own failure."""
        with closing(sqlite3.connect(self._arena.state_dir / "prewarm.db")) as database:
            return database.execute(
                "SELECT model, code FROM events WHERE to_status = 'failed' ORDER BY id"
            ).fetchall()

    def builds(self) -> list[str]:
        """Return the model of each compile run, oldest first."""
        with closing(sqlite3.connect(self._arena.state_dir / "prewarm.db")) as database:
            return [model for (model,) in database.execute(
                "SELECT model FROM builds JOIN entries ON entries.id = entry_id ORDER BY builds.id"
            )]  # fmt: skip

    def _scratch(self) -> list[str]:
        """Return what lies in the state directory and is nobody's any more."""
        state = self._arena.state_dir
        left = [path.name for path in state.glob("work/*")
                if not path.name.startswith("torchside-")]  # fmt: skip
        left += [path.name for path in state.iterdir()
                 if path.name.startswith("work-dead") or is_part(path.name)]  # fmt: skip
        return left

    def _leftovers(self) -> None:
        """What dead writers left in the cache_dir waits for the grace period, one file a kill."""
        parts = {path for path in self._arena.cache_dir.rglob("*") if is_part(path.name)}
        assert len(parts - self._parts) <= 1, sorted(parts)
        self._parts = parts


def _models(read: ReadManifest) -> set[str]:
    return {entry.model for entry in read.manifest.entries}


def _entries(path: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path, timeout=30)) as database:
        database.row_factory = sqlite3.Row
        assert database.execute("PRAGMA integrity_check").fetchall()[0][0] == "ok"
        assert not database.execute("PRAGMA foreign_key_check").fetchall()
        tables = "SELECT 1 FROM sqlite_master WHERE name = 'entries'"
        if not database.execute(tables).fetchall():
            return []
        return [dict(row) for row in database.execute("SELECT * FROM entries")]

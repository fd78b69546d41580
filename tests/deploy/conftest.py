"""Fixtures of the deployment's side: a real cache directory with real bundles and manifests."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prewarm.environment import Environment
from prewarm.present import present_environment
from prewarm.store.bundle import BundleInfo, bundle_path, pack
from prewarm.store.manifest import Manifest, ManifestEntry, write_manifest
from prewarm.store.manifest_reading import Reading
from prewarm.store.signing import load_or_create_key

FILES = {
    "inductor/aa/one.py": b"one" * 1000,
    "inductor/aa/kernel.so": b"\x7fELF" + bytes(5000),
    "inductor/fxgraph/bb/graph": b"graph",
}


@dataclass
class Publisher:
    """Publishes entries into a cache directory as a builder does."""

    root: Path
    facts: dict[str, str | None]
    entries: list[dict[str, Any]] = field(default_factory=list)
    environments: dict[str, dict[str, str | None]] = field(default_factory=dict)

    @property
    def cache_dir(self) -> Path:
        return self.root / "cache"

    def bundle(self, files: Mapping[str, bytes]) -> BundleInfo:
        tree = self.root / "tree"
        for name, data in files.items():
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        packed = self.root / "packed"
        info = pack(tree, packed)
        target = bundle_path(self.cache_dir, info.sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        packed.rename(target)
        subprocess.run(["rm", "-rf", str(tree)], check=True)
        return info

    def __call__(
        self,
        model: str = "minilm/v1",
        files: Mapping[str, bytes] = FILES,
        *,
        facts: Mapping[str, str | None] | None = None,
        builder: str = "gpu-1",
        **values: object,
    ) -> BundleInfo:
        info = self.bundle(files)
        environment = Environment.from_facts(self.facts | dict(facts or {}))
        self.environments[environment.id] = environment.to_dict()
        entry: dict[str, Any] = {
            "model": model,
            "aliases": [],
            "checkpoint": "c" * 64,
            "architecture": "a" * 64,
            "environment": environment.id,
            "build_key": "k" * 64,
            "status": "warm",
            "reason": None,
            "code": None,
            "requires": [],
            "covers": "any order",
            "bundle": {
                "sha256": info.sha256,
                "size_bytes": info.size_bytes,
                "unpacked_bytes": info.unpacked_bytes,
                "files": info.files,
            },
            "compile": {
                "mode": "max-autotune",
                "asked_mode": "max-autotune",
                "dynamic": False,
                "recompile_limit": 8,
            },
            "variables": {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"},
            "shape_sets": [],
            "proof": {},
        }
        self.entries.append(entry | values)
        self.write(builder)
        return info

    def write(self, builder: str = "gpu-1") -> None:
        reading = Reading()
        entries = tuple(ManifestEntry.read(entry, "entry", reading) for entry in self.entries)
        reading.refuse()
        manifest = Manifest(
            builder=builder,
            version="0.1.0",
            environments=self.environments,
            entries=entries,
            generated_at="2027-01-15T08:00:00.000Z",
        )
        write_manifest(self.cache_dir, manifest, load_or_create_key(self.root / "state"))


@pytest.fixture(scope="session")
def present_facts() -> dict[str, str | None]:
    facts = present_environment((), device="cpu", threads=0, library="").to_dict()
    # Whatever the machine that runs the tests has or lacks, a compiler is there.
    return facts


@pytest.fixture
def publish(tmp_path: Path, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(tmp_path, present_facts)


@pytest.fixture
def prewarm_process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command as a process of its own."""

    def run(
        *arguments: object, umask: int = -1, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        argv: Sequence[str] = [sys.executable, "-m", "prewarm.cli", *map(str, arguments)]
        return subprocess.run(
            argv,
            env=os.environ | dict(environ or {}),
            capture_output=True,
            text=True,
            umask=umask,
            check=False,
        )

    return run


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user can reach (pytest's own are closed to others)."""
    with tempfile.TemporaryDirectory(prefix="prewarm-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB."""
    path = tmp_path / "tiny"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "prewarm-test", str(path)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.decode().strip()}")
    yield path
    subprocess.run(["umount", str(path)], check=True)

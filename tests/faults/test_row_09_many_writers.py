"""Row 9, many writers: one writer for each file, whole files by rename, readers that see no half.

Upstream: triton #2688, #11512; vllm #24601.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prewarm.deploy.published import trusted_manifests
from prewarm.store.bundle import bundle_path

from ..shop import FAKE, Shop


class Reader:
    """A deployment that never pauses: it reads every manifest and every bundle that one names."""

    def __init__(self, cache_dir: Path) -> None:
        self._cache_dir = cache_dir
        self._stop = threading.Event()
        self.reads = 0
        self.generations: set[tuple[str, int]] = set()
        self.faults: list[str] = []

    def read(self) -> None:
        trusted, refused = trusted_manifests(self._cache_dir, uid=os.geteuid())
        self.faults += refused
        for one in trusted:
            manifest = one.manifest
            self.generations.add((manifest.builder, manifest.generation))
            for entry in manifest.entries:
                raw = bundle_path(self._cache_dir, entry.bundle.sha256).read_bytes()
                if hashlib.sha256(raw).hexdigest() != entry.bundle.sha256:
                    self.faults.append(f"{entry.model}: a bundle of {len(raw)} bytes")
        self.reads += 1

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.read()
            except Exception as error:
                self.faults.append(repr(error))

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join(30)


def test_two_builders_publish_at_once_and_a_reader_sees_whole_manifests_only(
    shop, fault_row
) -> None:
    for number in range(4):
        shop.model(f"m{number}", f"weights {number}".encode(), graph=f"graph {number}")
    shops = [
        shop.with_settings(builder=name, state_dir=shop.root / f"state-{name}")
        for name in ("one", "two")
    ]
    (shop.settings.cache_dir / "manifests").mkdir(parents=True)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda s=s: results.append(s.scan())) for s in shops]
    with Reader(shop.settings.cache_dir).reading() as reader:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert [result.all_warm for result in results] == [True, True]
    assert reader.faults == []
    assert reader.reads > 10
    assert {builder for builder, _ in reader.generations} == {"one", "two"}
    code, line = shop.hook("m3", "--on-miss", "fail", "--env-file", str(shop.root / "env"))
    assert (code, line) == (0, "")
    # In whole numbers only, so that the table does not change from run to run.
    said = f"{shop.printed.splitlines()[0]} (no reader saw a part of a file)"
    fault_row(row=9, case="two builders publish into one cache_dir at once", alone=None, said=said)


def test_bundles_that_are_replaced_while_deployments_read_are_there_for_each_manifest(
    shop, fault_row
) -> None:
    shop.model("m", graph="one")
    shop.scan()
    bundles = {shop.entry("m").bundle_sha256}
    with Reader(shop.settings.cache_dir).reading() as reader:
        for number in range(3):
            shop.model("m", graph=f"again {number}", weights=f"{number}".encode())
            shop.declare(change=("batch = [3]", f"batch = [{number + 4}]"))
            assert shop.scan().all_warm
            bundles.add(shop.entry("m").bundle_sha256)
    assert len(bundles) == 4
    assert reader.faults == []
    assert len(reader.generations) > 3
    code, line = shop.hook("m", "--on-miss", "fail", "--env-file", str(shop.root / "env"))
    assert (code, line) == (0, "")
    said = f"{shop.printed.splitlines()[0]} (older bundles stay for readers of older manifests)"
    fault_row(row=9, case="a bundle replaced while deployments read it", alone=None, said=said)


def test_hooks_that_fill_one_directory_at_once_all_leave_it_whole(shop: Shop, fault_row) -> None:
    shop.model("m", small_files=200)
    shop.scan()
    into = shop.root / "private"
    interpreter = shlex.join([sys.executable, str(FAKE)])
    argv = [
        sys.executable, "-m", "prewarm.cli", "hook", "m", "--into", str(into), "--on-miss", "fail",
        "--interpreter", interpreter, "--cache-dir", str(shop.settings.cache_dir),
        "--state-dir", str(shop.settings.state_dir),
    ]  # fmt: skip
    hooks = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(3)
    ]
    told = [hook.communicate(timeout=60)[0] for hook in hooks]
    assert [hook.returncode for hook in hooks] == [0, 0, 0], told
    code, line = shop.hook("m", "--on-miss", "fail", "--env-file", str(shop.root / "env"))
    assert (code, line) == (0, "")
    assert len([path for path in into.iterdir() if len(path.name) == 64]) <= 1
    said = shop.printed.splitlines()[0]
    fault_row(row=9, case="three hooks fill one directory at once", alone=None, said=said)


def test_a_second_writer_of_one_state_directory_is_refused_by_name(
    shop, fault_row, tmp_path, wait_until
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    shop.model("m", marks=str(marks), hold=["compile-begun"])
    first = threading.Thread(target=shop.scan)
    first.start()
    try:
        wait_until((marks / "compile-begun.reached").exists)
        code, line = shop.prewarm("scan", "--registry", str(shop.settings.registry))
    finally:
        (marks / "compile-begun.go").touch()
        first.join(60)
    assert code == 1
    assert "prewarm scan (pid " in line
    assert line.endswith("wait for it or end it\n")
    assert shop.builds("m") == ["compiled"]
    said = line.replace(f"pid {os.getpid()}", "pid 1234").partition(", since ")
    said = f"{said[0]}) … {line.rpartition('; ')[2]}"
    fault_row(row=9, case="a second scan on one state_dir", alone=None, said=said)

"""Side by side: one published model started in every way, on this machine, in one run.

Owns the order and the directories of the arms; what they are is ``arms.py``'s. Rules:

- Each start is a fresh process of one child under the declaration's interpreter, watched alike.
- The cold start fills a directory; a copy of it is put back *at the same path* before each first
  start of upstream's arm, since torch looks for what was tuned at the path of the build.
- prewarm's arm is the real command: ``prewarm hook`` into an empty directory, then the start.
- It holds the state directory, so that no build of this builder is timed beside it.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.build.arms import Arm, ArmResult, SideBySide, Start
from prewarm.build.asking import Desk, ask_start
from prewarm.build.bench import Bench
from prewarm.build.environments import Environments
from prewarm.build.run import open_run, registry_of
from prewarm.build.step import Reporter, Step
from prewarm.config import Settings
from prewarm.errors import PrewarmError
from prewarm.registry.declaration import Declaration
from prewarm.registry.scan import Found, scan_registry, select_named
from prewarm.store.bundle import bundle_path
from prewarm.store.logs import log_of
from prewarm.store.whole_file import write_errors

#: Fresh processes of each warm arm.
REPEATS = 3


def run_side_by_side(
    settings: Settings,
    model: str,
    *,
    repeats: int = REPEATS,
    report: Reporter,
    stop: threading.Event,
    now_s: Callable[[], float] = time.time,
) -> SideBySide:
    """Start a published model in each way and return what was seen.

    Raises:
        RegistryError: the model is not in the registry.
        PrewarmError: it is not published for this machine, or has no declaration.
        ChildFailed: a start ended without an answer.
        LockHeld: another prewarm works on the state directory.
        Interrupted: ``stop`` was set.
    """
    registry = registry_of(settings)
    with open_run(settings, what="prewarm bench", report=report, stop=stop, now_s=now_s) as bench:
        found = scan_registry(registry, settle_s=settings.settle_s, now_s=now_s())
        item, declaration = _declared(select_named(found, (model,), registry)[0])
        with bench.workspace.directory("bench") as directory:
            run = _Run(bench, item, declaration, directory, repeats)
            # First, since a model that is not published is told before minutes are spent.
            hooked = run.hook(directory / "first-hook")
            results = run.all_arms()
        return SideBySide(
            model=item.checkpoint.name,
            mode=declaration.compile.mode[0],
            status=hooked.status,
            requires=hooked.requires,
            environment=dict(Environments()(declaration).facts),
            at=bench.at(),
            results=results,
        )


def _declared(item: Found) -> tuple[Found, Declaration]:
    if item.problem is not None:
        raise item.problem
    if item.declaration is None:
        name = item.checkpoint.name
        raise PrewarmError(
            f"{name}: no declaration covers it; `prewarm init {name}` writes a first one",
            code="not_published",
        )
    return item, item.declaration


@dataclass(frozen=True, slots=True)
class _Hooked:
    """What the hook gave a start, and how long it took."""

    seconds: float
    variables: Mapping[str, str]
    status: str
    requires: tuple[str, ...]
    bundle: str


@dataclass(frozen=True, slots=True)
class _Run:
    bench: Bench
    item: Found
    declaration: Declaration
    directory: Path
    repeats: int

    def all_arms(self) -> tuple[ArmResult, ...]:
        """Run the arms in an order in which each finds what it needs."""
        artifacts = self.directory / "artifacts"
        cache, kept = self.directory / "upstream", self.directory / "kept"
        eager = [self.start(Arm.EAGER, number, eager=True) for number in range(self.repeats)]
        cold = self.start(Arm.COLD, 0, cache=cache, save_artifacts=str(artifacts))
        with write_errors(kept):
            shutil.copytree(cache, kept)
        first, second = self._upstream(cache, kept)
        results = [
            ArmResult(Arm.EAGER, tuple(eager)),
            ArmResult(Arm.COLD, (cold,)),
            ArmResult(Arm.UPSTREAM_FIRST, first, *_on_disk(kept)),
            ArmResult(Arm.UPSTREAM_SECOND, second),
        ]
        if artifacts.is_file():
            results.append(self._mega_cache(artifacts))
        results.append(self._prewarm())
        return tuple(results)

    def _upstream(self, cache: Path, kept: Path) -> tuple[tuple[Start, ...], tuple[Start, ...]]:
        first, second = [], []
        for number in range(self.repeats):
            with write_errors(cache):
                shutil.rmtree(cache)
                shutil.copytree(kept, cache)
            first.append(self.start(Arm.UPSTREAM_FIRST, number, cache=cache))
            second.append(self.start(Arm.UPSTREAM_SECOND, number, cache=cache))
        return tuple(first), tuple(second)

    def _mega_cache(self, artifacts: Path) -> ArmResult:
        starts = tuple(
            self.start(Arm.MEGA_CACHE, number, load_artifacts=str(artifacts))
            for number in range(self.repeats)
        )
        return ArmResult(Arm.MEGA_CACHE, starts, stored_bytes=artifacts.stat().st_size, files=1)

    def _prewarm(self) -> ArmResult:
        starts = []
        for number in range(self.repeats):
            into = self.directory / f"private-{number}"
            hooked = self.hook(into)
            # What a start leaves there is not what the bundle brought.
            _, unpacked_bytes, files = _on_disk(into)
            starts.append(self.start(Arm.PREWARM, number, hooked=hooked))
        packed = bundle_path(self.bench.settings.cache_dir, hooked.bundle)
        stored_bytes = packed.stat().st_size
        return ArmResult(Arm.PREWARM, tuple(starts), stored_bytes, unpacked_bytes, files)

    def start(
        self,
        arm: Arm,
        number: int,
        *,
        cache: Path | None = None,
        hooked: _Hooked | None = None,
        **asked: Any,
    ) -> Start:
        """Make one start; without a ``cache`` it has an empty one of its own."""
        self.say(f"{arm.value}, process {number + 1}")
        workdir = self.directory / f"{arm.name.lower()}-{number}"
        answer = ask_start(
            self._desk(),
            workdir,
            cache=cache or workdir / "cache",
            mode=self.declaration.compile.mode[0],
            variables=hooked.variables if hooked else {},
            asked=asked,
        )
        return Start.from_answer(answer, hook_s=hooked.seconds if hooked else 0.0)

    def hook(self, into: Path) -> _Hooked:
        """Run ``prewarm hook`` as a deployment does, into an empty directory."""
        settings, name = self.bench.settings, self.item.checkpoint.name
        argv = [sys.executable, "-m", "prewarm.cli", "hook", name, "--into", str(into), "--json"]
        argv += ["--cache-dir", str(settings.cache_dir), "--state-dir", str(settings.state_dir)]
        argv += ["--interpreter", shlex.join(self.declaration.interpreter or (sys.executable,))]
        started_s = time.perf_counter()
        ended = subprocess.run(argv, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started_s
        told = json.loads(ended.stdout) if ended.returncode == 0 else {"models": []}
        if not told["models"]:
            why = ended.stderr.strip().rpartition("\n")[2].removeprefix("prewarm: ")
            raise PrewarmError(
                f"{name}: nothing to compare, since the hook finds no bundle ({why}); "
                f"run `prewarm scan {name}` first",
                code="not_published",
            )
        (model,) = told["models"]
        return _Hooked(
            seconds, told["variables"], model["status"], tuple(model["requires"]), model["bundle"]
        )

    def say(self, detail: str) -> None:
        """Tell what is started now."""
        self.bench.report(Step(self.item.checkpoint.name, "bench", detail))

    def _desk(self) -> Desk:
        log = log_of(self.bench.workspace.logs, self.item.checkpoint.name, "bench", self.bench.at())
        return Desk(
            declaration=self.declaration,
            checkpoint=self.item.checkpoint.path,
            copy=self.bench.copy,
            log=log,
            memory_bytes=self.bench.settings.child_memory_bytes,
            stop=self.bench.stop,
        )


def _on_disk(directory: Path) -> tuple[int, int, int]:
    """Return the bytes stored, the same bytes unpacked, and the number of files."""
    sizes = [
        (Path(parent) / name).stat().st_size
        for parent, _, names in os.walk(directory)
        for name in names
    ]
    return sum(sizes), sum(sizes), len(sizes)

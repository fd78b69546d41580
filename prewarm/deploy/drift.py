"""What a deployment compiled by itself since its directory was filled.

Owns the reading of a private directory as a whole: which bundles it holds, what was added to them,
and what each start's report tells against their proofs (``contrast.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.deploy.added_files import Added, added_files
from prewarm.deploy.contrast import NOT_COMPILED, Contrast, Proven, contrast, told
from prewarm.deploy.filled import read_filled
from prewarm.deploy.listing import read_listing
from prewarm.deploy.start_reports import Start, read_starts
from prewarm.errors import ConfigError
from prewarm.store.timestamp import timestamp

#: Counts of a start report that say that something was made.
MADE = (
    "graphs_compiled", "graphs_bypassed", "fx_misses", "aot_misses", "aot_bypassed",
    "cpp_compiled", "triton_compiled", "benchmarked_autotuning",
    "benchmarked_coordinate_descent", "compilers_started",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class OwnGraph:
    """A graph that was no hit, and why."""

    graph: Mapping[str, Any]
    contrast: Contrast

    def to_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON, each field to look at with its sentence."""
        return {
            **self.graph,
            "differences": [
                {**found.to_dict(), "sentence": told(found)} for found in self.contrast.differences
            ],
            "advice": list(self.contrast.advice),
            "note": self.contrast.note,
        }


@dataclass(frozen=True, slots=True)
class StartDrift:
    """What one start compiled by itself: its graphs, and its counts that are not zero."""

    start: Start
    own: tuple[OwnGraph, ...]
    found: int
    counts: dict[str, int]
    unseen: tuple[str, ...]

    @property
    def compiled(self) -> bool:
        """Whether anything was made."""
        return bool(self.own or self.counts)

    @property
    def seconds(self) -> float:
        """How long its own graphs took."""
        return round(sum(one.graph.get("seconds") or 0 for one in self.own), 3)

    @property
    def first_run_s(self) -> float | None:
        """Seconds up to the first compiled graph's end in the process that was first there."""
        processes = self.start.report["processes"]
        return next((one["first_run_s"] for one in processes if one["first_run_s"]), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the start as it stands in JSON."""
        return {
            "start": self.start.name,
            "started_at": timestamp(self.start.at_s),
            "pid": self.start.pid,
            "first_run_s": self.first_run_s,
            "compiled": self.compiled,
            "seconds": self.seconds,
            "graphs_found": self.found,
            "graphs": [one.to_dict() for one in self.own],
            "counts": self.counts,
            "cannot_tell": list(self.unseen),
        }


@dataclass(frozen=True, slots=True)
class Drift:
    """A private directory as its hook filled it, what was added, and its starts.

    ``added`` is None where no listing says what the hook put there; ``earlier`` counts starts from
    before the present bundles.
    """

    directory: Path
    models: tuple[str, ...]
    tree: Path
    filled_at_s: float
    added: Added | None
    starts: tuple[StartDrift, ...]
    earlier: int

    @property
    def compiled(self) -> bool:
        """Whether anything was compiled, by what is told or by what was left behind."""
        by_files = self.added is not None and bool(self.added.files or self.added.changed)
        return by_files or any(start.compiled for start in self.starts)

    def to_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        return {
            "directory": str(self.directory),
            "models": list(self.models),
            "tree": str(self.tree),
            "filled_at": timestamp(self.filled_at_s),
            "compiled": self.compiled,
            "added": self.added.to_dict() if self.added is not None else None,
            "starts": [start.to_dict() for start in self.starts],
            "earlier_starts": self.earlier,
        }


def read_drift(directory: Path) -> Drift:
    """Read a directory that a hook filled (its ``--into``).

    Raises:
        ConfigError: no hook has filled it, or it cannot be read.
    """
    env_json, filled_at_s = read_filled(directory)
    entries: list[Mapping[str, Any]] = env_json["entries"]
    tree = directory / env_json["caches"]["TORCHINDUCTOR_CACHE_DIR"].split("/")[0]
    devices = {facts.get("device") for facts in env_json["environments"].values()}
    proven = [Proven.of(entry) for entry in entries]
    try:
        listing = read_listing(tree)
        added = added_files(tree, listing) if listing is not None else None
        starts = read_starts(directory, has_triton=devices != {"cpu"})
    except OSError as error:
        raise ConfigError(
            f"{error.filename or directory}: cannot be read ({error.strerror}); run this as the "
            "deployment's user",
            code="not_filled",
        ) from error
    present = [start for start in starts if start.at_s >= filled_at_s]
    return Drift(
        directory=directory,
        models=tuple(str(entry.get("model")) for entry in entries),
        tree=tree,
        filled_at_s=filled_at_s,
        added=added,
        starts=tuple(start_drift(start, proven) for start in present),
        earlier=len(starts) - len(present),
    )


def start_drift(start: Start, proven: Sequence[Proven]) -> StartDrift:
    """Hold a start's report against what was proven."""
    graphs = start.report["graphs"] or []
    own = [graph for graph in graphs if graph["outcome"] not in (*NOT_COMPILED, None)]
    counts = {name: start.report[name] for name in MADE}
    unseen = [name for name, count in counts.items() if count is None]
    return StartDrift(
        start=start,
        own=tuple(OwnGraph(graph, contrast(graph, proven)) for graph in own),
        found=sum(1 for graph in graphs if graph["outcome"] == "hit"),
        counts={name: count for name, count in counts.items() if isinstance(count, int) and count},
        unseen=(*unseen, *(["graphs"] if start.report["graphs"] is None else [])),
    )

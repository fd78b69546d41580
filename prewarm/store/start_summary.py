"""What of a start report is looked at often: its counts that are not zero, and what it compiled.

Pure. Owns the cleaning of what a deployment sent, so that it is small and harmless wherever it is
shown, and its one JSON form in the database. The report itself is kept beside it, as it came.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

#: Of one start: a server of more sizes shows them in its next starts.
MOST_GRAPHS, MOST_INPUTS, MOST_DIMENSIONS = 32, 16, 8

#: Of one summary in the database, in bytes; 1,000 of them are read for one `status`.
MOST_BYTES = 4_096

#: Graphs that were not compiled, or where that is not known.
_NOT_COMPILED = frozenset({"hit", "nothing", None})

#: What a graph break leaves of a frame: its inputs are the frame's variables, not a call's.
_RESUMED = "torch_dynamo_resume_in_"

_NAME = re.compile(r"[A-Za-z_][\w.]{0,63}", re.ASCII)
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}", re.ASCII)
_LARGEST = 1 << 53

#: Of a name that cannot stand in a declaration; the tensor is then known by its place.
_NAMELESS = "?"

Tensor = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StartSummary:
    """The counts that are not zero, those that could not be watched, inputs of compiled graphs."""

    counts: dict[str, int]
    cannot_tell: tuple[str, ...]
    graphs: tuple[tuple[Tensor, ...], ...]

    @classmethod
    def of(cls, report: Mapping[str, Any], fields: Iterable[str]) -> Self:
        """Summarise a start report; ``fields`` are its counts that matter."""
        counts = {name: report.get(name) for name in fields}
        return cls(
            counts={name: count for name, count in counts.items() if type(count) is int and count},
            cannot_tell=tuple(name for name, count in counts.items() if count is None),
            graphs=tuple(_compiled(report.get("graphs")))[:MOST_GRAPHS],
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the form of the database."""
        found = json.loads(text)
        return cls(
            counts=dict(found.get("counts", {})),
            cannot_tell=tuple(found.get("cannot_tell", ())),
            graphs=tuple(
                tuple(
                    {"name": name, "dtype": dtype, "shape": list(shape)}
                    for name, dtype, shape in tensors
                )
                for tensors in found.get("graphs", ())
            ),
        )

    def to_json(self) -> str:
        """Return the form of the database, with as many graphs as there is room for."""
        graphs = [
            [[one["name"], one["dtype"], one["shape"]] for one in tensors]
            for tensors in self.graphs
        ]
        while True:
            told = {"counts": self.counts, "cannot_tell": self.cannot_tell, "graphs": graphs}
            text = json.dumps(told, separators=(",", ":"))
            if len(text) <= MOST_BYTES or not graphs:
                return text
            graphs.pop()


def _compiled(graphs: object) -> Iterator[tuple[Tensor, ...]]:
    """Yield the inputs of each graph that was compiled for a call, each once."""
    seen: list[tuple[Tensor, ...]] = []
    for graph in graphs if isinstance(graphs, list) else ():
        if not isinstance(graph, Mapping) or not _is_compiled(graph.get("outcome")):
            continue
        frame = graph.get("frame")
        name = frame.get("name") if isinstance(frame, Mapping) else None
        if not isinstance(name, str) or name.startswith(_RESUMED):
            continue
        tensors = _tensors(graph.get("inputs"))
        if tensors and tensors not in seen:
            seen.append(tensors)
            yield tensors
            if len(seen) == MOST_GRAPHS:
                return


def _is_compiled(outcome: object) -> bool:
    return isinstance(outcome, str) and outcome not in _NOT_COMPILED


def _tensors(inputs: object) -> tuple[Tensor, ...] | None:
    """Return the inputs of a graph, None where one of them is not told in full."""
    if not isinstance(inputs, list) or len(inputs) > MOST_INPUTS:
        return None
    tensors = [_tensor(given) for given in inputs]
    return None if None in tensors else tuple(one for one in tensors if one is not None)


def _tensor(given: object) -> Tensor | None:
    if not isinstance(given, Mapping):
        return None
    name, dtype = given.get("name"), given.get("dtype")
    shape = given.get("sizes") or given.get("shape")
    if not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        return None
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        return None
    if not all(type(size) is int and 0 <= size < _LARGEST for size in shape):
        return None
    known = isinstance(name, str) and _NAME.fullmatch(name)
    return {"name": name if known else _NAMELESS, "dtype": dtype, "shape": list(shape)}


#: Of a report that was kept before there were summaries.
NOTHING_KNOWN = StartSummary({}, (), ())

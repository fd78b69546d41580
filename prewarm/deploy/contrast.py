"""A graph that a deployment compiled by itself, held against the graphs that were proven.

Pure. Owns which declared field each fact of a graph (README, "The start report") leads to, in the
spelling that ``explain`` has. It can name only what the watcher sees; where none of that differs,
it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prewarm.deploy.input_sizes import call_of, declared_sizes, sizes_text, toml_lines
from prewarm.environment import Difference

Table = Mapping[str, Any]

#: What became of a graph that was not compiled.
NOT_COMPILED = frozenset({"hit", "nothing"})

_FULL = "a compile of this graph"
_SETUP = "a compile of this graph; set it in [model] setup, so that the build has it too"

#: Facts that are one value each, in the order in which they are told.
_PLAIN: tuple[tuple[str, str, str], ...] = (
    ("grad", "[model] grad", _FULL),
    ("autocast", "[model] autocast", _FULL),
    ("dynamic", "[compile] dynamic", _FULL),
    ("threads", "[model] threads", _FULL),
)
_STATES: tuple[tuple[str, str], ...] = (
    ("precision", "float32 matmul precision"),
    ("deterministic", "deterministic algorithms"),
)

#: Fields whose difference explains that other inputs or another number of parameters are seen.
_TARGETS = "[compile] targets"


@dataclass(frozen=True, slots=True)
class Proven:
    """What a manifest entry's proof tells: its graphs, and the ``shapes`` of its declaration."""

    graphs: tuple[Table, ...]
    shapes: tuple[Table, ...] = ()

    @classmethod
    def of(cls, entry: Table) -> Proven:
        """Read an entry of a manifest; an older one names no graphs."""
        proof = entry.get("proof") or {}
        declared = proof.get("declared") or {}
        return cls(tuple(proof.get("graphs") or ()), tuple(declared.get("shapes") or ()))


@dataclass(frozen=True, slots=True)
class Contrast:
    """Why a graph was compiled: the fields to look at, the most telling first.

    ``advice`` is what to write there, where that can be told; ``note`` says what is known when no
    field is named.
    """

    differences: tuple[Difference, ...]
    advice: tuple[str, ...] = ()
    note: str | None = None


def contrast(graph: Table, proven: Sequence[Proven]) -> Contrast:
    """Compare a start's graph with the nearest proven one."""
    found = [_against(graph, known, one) for one in proven for known in one.graphs]
    if not found:
        return Contrast(
            (), note="no proof of this deployment names its graphs; scan and hook again"
        )
    if graph.get("frame") is None:
        return Contrast((), note="what it was made from could not be watched")
    nearest = min(found, key=_distance)
    if nearest.differences or graph.get("outcome") in NOT_COMPILED:
        return nearest
    return Contrast((), note=_note(graph))


def told(difference: Difference) -> str:
    """Say in one sentence what a start did otherwise; without a full stop."""
    here = difference.present or "not set"
    return (
        f"{difference.fact}: {here} in this start, {difference.recorded or 'not set'} in the proof"
    )


def _against(graph: Table, known: Table, proven: Proven) -> Contrast:
    differences = [*_frame(graph, known)]
    advice: list[str] = []
    if not differences:
        differences += _module(graph, known)
    differences += _parameters(graph, known)
    differences += _surroundings(graph, known)
    for difference, line in _inputs(graph, known, proven.shapes):
        differences.append(difference)
        advice += [line] if line else []
    if any(difference.fact == "[model] setup" for difference in differences):
        advice.append("[model] setup names a function of your own that sets it for the build")
    return Contrast(tuple(differences), tuple(advice))


def _distance(one: Contrast) -> tuple[bool, int]:
    return any(found.fact == _TARGETS for found in one.differences), len(one.differences)


def _note(graph: Table) -> str:
    if graph.get("outcome") == "bypass":
        return f"the cache refuses it: {graph.get('reason') or 'torch gave no reason'}"
    if graph.get("outcome") == "off":
        return "torch asked no cache: a setting or variable has switched them off"
    return (
        "nothing that is watched differs from the proof, so the graph itself does: look at the "
        "module's attributes, hooks and source, and run `prewarm explain`"
    )


# -- what is compiled


def _frame(graph: Table, known: Table) -> Iterator[Difference]:
    here, there = graph.get("frame") or {}, known.get("frame") or {}
    if (here.get("name"), here.get("of")) != (there.get("name"), there.get("of")):
        yield Difference(_TARGETS, _frame_text(there), _frame_text(here), _FULL)


def _frame_text(frame: Table) -> str:
    of = f" of {frame['of']}" if frame.get("of") else ""
    return f"{frame.get('name')}{of} ({frame.get('file')})"


def _module(graph: Table, known: Table) -> Iterator[Difference]:
    """Yield that the module is another one, where the same was compiled."""
    here, there = graph.get("parameters") or {}, known.get("parameters") or {}
    if (here.get("count"), here.get("elements")) != (there.get("count"), there.get("elements")):
        yield Difference("[model] kwargs", _size_text(there), _size_text(here), _FULL)


def _size_text(parameters: Table) -> str:
    return f"{parameters.get('count')} parameters with {parameters.get('elements')} elements"


def _parameters(graph: Table, known: Table) -> Iterator[Difference]:
    here, there = graph.get("parameters") or {}, known.get("parameters") or {}
    if not here.get("count") or not there.get("count"):
        return
    yield from _unless_equal("[model] dtype", there, here, _dtypes)
    yield from _unless_equal("[model] requires_grad", there, here, _requires_grad)


def _dtypes(parameters: Table) -> str:
    return " and ".join(sorted(parameters.get("dtypes") or {}))


def _requires_grad(parameters: Table) -> str:
    count, with_grad = parameters.get("count"), parameters.get("requires_grad")
    return {0: "false", count: "true"}.get(with_grad, f"{with_grad} of {count} parameters")


def _unless_equal(
    fact: str, there: Table, here: Table, text: Callable[[Table], str], cost: str = _FULL
) -> Iterator[Difference]:
    if text(there) != text(here):
        yield Difference(fact, text(there), text(here), cost)


# -- what stands around it


def _surroundings(graph: Table, known: Table) -> Iterator[Difference]:
    (mode, options), (known_mode, known_options) = _mode(graph), _mode(known)
    if mode != known_mode:
        yield Difference("[compile] mode", known_mode, mode, _FULL)
    for key, fact, cost in _PLAIN:
        if graph.get(key) != known.get(key):
            yield Difference(fact, _text(known.get(key)), _text(graph.get(key)), cost)
    here = {**(graph.get("config") or {}), **options}
    there = {**(known.get("config") or {}), **known_options}
    for name in sorted(here.keys() | there.keys()):
        if here.get(name) != there.get(name):
            fact = f"[compile] config.{name}"
            yield Difference(fact, there.get(name), here.get(name), _FULL)
    for key, words in _STATES:
        if graph.get(key) != known.get(key):
            recorded, present = (f"{words} {_text(one.get(key))}" for one in (known, graph))
            yield Difference("[model] setup", recorded, present, _SETUP)


def _mode(graph: Table) -> tuple[str, dict[str, str]]:
    """Part what was asked for as the mode from what was set beside it."""
    name, _, rest = str(graph.get("mode") or "default").partition(" with ")
    pairs = (one.partition("=") for one in rest.split(", ") if rest)
    return name, {key: value for key, _, value in pairs}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- what it is called with


def _inputs(
    graph: Table, known: Table, shapes: Sequence[Table]
) -> Iterator[tuple[Difference, str | None]]:
    here, there = graph.get("inputs") or (), known.get("inputs") or ()
    call, proven_call = call_of(here, shapes), call_of(there, shapes)
    name = call.shape_set if call else proven_call.shape_set if proven_call else ""
    title = f"[[shapes]] {name}".rstrip()
    if len(here) != len(there):
        yield (
            Difference(f"{title} inputs", f"{len(there)} tensors", f"{len(here)} tensors", _FULL),
            None,
        )
        return
    if call is not None and not call.is_declared:
        declared = declared_sizes(call.shape_set, shapes)
        yield (
            Difference(f"{title} sizes", declared, sizes_text(call.sizes), _FULL),
            toml_lines(call),
        )
    sized = call is not None
    for one, other in zip(here, there, strict=True):
        fact = f"{title} inputs.{one.get('name')}"
        if one.get("dtype") != other.get("dtype"):
            yield Difference(f"{fact}.dtype", other.get("dtype"), one.get("dtype"), _FULL), None
        if not sized and _shape(one) != _shape(other):
            shape = " × ".join(str(size) for size in one.get("sizes") or one.get("shape") or ())
            known_shape = " × ".join(str(size) for size in other.get("shape") or ())
            # The title alone where no shape set is known to be this call.
            key = f"{title} sizes" if not shapes else f"{fact}.shape"
            yield Difference(key, known_shape, shape, _FULL), None
        if one.get("strides") != other.get("strides") and len(_shape(one)) == len(_shape(other)):
            yield _strides(fact, one, other)
        if bool(one.get("requires_grad")) != bool(other.get("requires_grad")):
            there_text, here_text = (_text(bool(x.get("requires_grad"))) for x in (other, one))
            yield Difference(f"{fact}.requires_grad", there_text, here_text, _FULL), None


def _shape(given: Table) -> list[object]:
    """Return a shape in which every size that was left open is the same word."""
    return [size if isinstance(size, int) else "any" for size in given.get("shape") or ()]


def _strides(fact: str, here: Table, there: Table) -> tuple[Difference, str | None]:
    recorded, present = _layout(there), _layout(here)
    if "channels_last" in (recorded, present):
        return Difference("[model] memory_format", recorded, present, _FULL), None
    advice = "a declared input is contiguous: make it so in the server (`.contiguous()`)"
    return Difference(f"{fact}.strides", recorded, present, _FULL), advice


def _layout(given: Table) -> str:
    strides = list(given.get("strides") or ())
    shape = list(given.get("sizes") or given.get("shape") or ())
    if not strides:
        return "contiguous"
    if len(shape) == 4 and len(strides) == 4:
        _, channels, _, width = shape
        if strides[1:] == [1, width * channels, channels]:
            return "channels_last"
    return "strides " + ", ".join(str(stride) for stride in strides)

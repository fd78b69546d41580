"""What of a declaration differs from what was recorded when its bundle was built.

Pure. Owns the spelling of the fields, as they are written in ``prewarm.toml``, and what a change of
each costs. Both sides are ``Declaration.recorded()``, less any absolute path.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prewarm.environment import Difference

FULL = "a full compile"

#: What a change of a field of [model] or [compile] costs where it is not a full compile alone.
_COSTS = {
    "[model] device": "refused: kernels of another device may compute garbage",
    "[model] threads": "a full compile: the thread count is part of the generated code's key",
}

#: Keys of an input that choose its values and not its form.
_VALUES = ("high", "low", "fill")

_ABSENT = object()


def compare_declared(
    recorded: Mapping[str, Any], present: Mapping[str, Any]
) -> tuple[Difference, ...]:
    """Return each field that differs, in the order of the file; none where only names do."""
    if recorded.get("key") == present.get("key"):
        return ()
    found = [
        *_tables("[model]", recorded.get("model"), present.get("model")),
        *_tables("[compile]", recorded.get("compile"), present.get("compile")),
        *_shapes(recorded.get("shapes") or (), present.get("shapes") or ()),
    ]
    if not found:
        # A path in a value, which no record holds, or a field that this version does not know.
        old, new = (f"#{str(one.get('key'))[:12]}" for one in (recorded, present))
        return (Difference("prewarm.toml", old, new, FULL),)
    return tuple(found)


def _tables(title: str, recorded: Any, present: Any) -> Iterator[Difference]:
    for where, old, new in _leaves(_table(recorded), _table(present), ()):
        fact = f"{title} {_path(where)}"
        yield Difference(fact, text_of(old), text_of(new), _COSTS.get(fact, FULL))


def _leaves(
    recorded: Any, present: Any, where: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    """Yield each place at which two values differ, with both; tables are gone into."""
    if isinstance(recorded, Mapping) and isinstance(present, Mapping):
        for key in dict.fromkeys((*recorded, *present)):
            yield from _leaves(
                recorded.get(key, _ABSENT), present.get(key, _ABSENT), (*where, str(key))
            )
    elif _plain(recorded) != _plain(present):
        yield where, recorded, present


# -- shape sets


def _shapes(
    recorded: Sequence[Mapping[str, Any]], present: Sequence[Mapping[str, Any]]
) -> Iterator[Difference]:
    old = {str(one.get("name")): one for one in recorded}
    new = {str(one.get("name")): one for one in present}
    pairs = {name: name for name in new if name in old}
    pairs |= _renamed(old, new, pairs)
    for name, one in new.items():
        if name in pairs:
            yield from _shape_set(name, old[pairs[name]], one)
        else:
            calls = _calls(one)
            yield Difference(f"[[shapes]] {name}", None, calls, f"a compile for its {calls}")
    for name in old.keys() - pairs.values():
        cost = "none for the shape sets that are left"
        yield Difference(f"[[shapes]] {name}", _calls(old[name]), None, cost)
    order = [pairs[name] for name in new if name in pairs]
    before = [name for name in old if name in order]
    if order != before:
        cost = "none in torch's keys; their order is part of what was proven"
        yield Difference("[[shapes]] order", ", ".join(before), ", ".join(order), cost)


def _renamed(
    old: Mapping[str, Mapping[str, Any]],
    new: Mapping[str, Mapping[str, Any]],
    pairs: Mapping[str, str],
) -> dict[str, str]:
    """Return the new names of shape sets that are what one was under another name."""
    left = {name: _nameless(one) for name, one in old.items() if name not in pairs}
    found: dict[str, str] = {}
    for name, one in new.items():
        if name in pairs:
            continue
        for former, content in left.items():
            if former not in found.values() and content == _nameless(one):
                found[name] = former
                break
    return found


def _nameless(shape_set: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in shape_set.items() if key != "name"}


def _shape_set(
    name: str, recorded: Mapping[str, Any], present: Mapping[str, Any]
) -> Iterator[Difference]:
    title = f"[[shapes]] {name}"
    one_call = f"a compile for the calls of {name}"
    for key in dict.fromkeys((*recorded, *present)):
        old, new = recorded.get(key, _ABSENT), present.get(key, _ABSENT)
        if key == "name" or _plain(old) == _plain(new):
            continue
        if key == "sizes":
            yield _sizes(f"{title} sizes", _rows(old), _rows(new))
            continue
        if key == "args":
            old, new = _numbered(old), _numbered(new)
        for where, before, after in _leaves(old, new, (str(key),)):
            values = where[-1] in _VALUES and key in ("inputs", "args")
            cost = "a compile where the values steer the graph" if values else one_call
            yield Difference(f"{title} {_path(where)}", text_of(before), text_of(after), cost)


def _sizes(
    fact: str, recorded: Sequence[Mapping[str, Any]], present: Sequence[Mapping[str, Any]]
) -> Difference:
    old, new = [_size(one) for one in recorded], [_size(one) for one in present]
    added = [one for one in new if one not in old]
    gone = [one for one in old if one not in new]
    if added:
        cost = f"a compile for the sizes that are new: {'; '.join(added)}"
    elif gone:
        cost = f"none for the sizes that are left; gone: {'; '.join(gone)}"
    else:
        cost = "none in torch's keys; their order is part of what was proven"
    return Difference(fact, "; ".join(old), "; ".join(new), cost)


def _size(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in sorted(sizes.items())) or "none"


def _calls(shape_set: Mapping[str, Any]) -> str:
    count = len(_rows(shape_set.get("sizes")))
    return f"{count} call{'s' if count != 1 else ''}"


# -- values and places


def text_of(value: Any) -> str | None:
    """Return a value as people write it; None where there is none."""
    if value is _ABSENT or value is None:
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key} = {_inner(below)}" for key, below in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_inner(below) for below in value)}]"
    return json.dumps(value)


def _inner(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else str(text_of(value))


def _path(where: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in where)


def _plain(value: Any) -> Any:
    """Return a value in which a tuple is the list that JSON makes of it, and 1 is not true."""
    if isinstance(value, Mapping):
        return {str(key): _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return (type(value), value) if isinstance(value, bool) else value


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _rows(value: Any) -> list[Mapping[str, Any]]:
    return [_table(one) for one in value] if isinstance(value, list | tuple) else []


def _numbered(value: Any) -> dict[str, Any]:
    return {str(number): one for number, one in enumerate(value)} if isinstance(value, list) else {}

"""A watched attribute of an upstream module: how it is wrapped, and whether it is there at all.

Knows nothing of torch; which attributes are watched is ``upstream.py``'s. A point that is not there
(another release, renamed, its module gone) stays out, and every field of the start report that
needs it becomes ``null``: "cannot tell" is never 0.
"""

from __future__ import annotations

import functools
import os
import sys

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any

    from .events import EventLog
    from .watch import Tally

    Function = Callable[..., Any]
    Maker = Callable[[Function, EventLog, Tally], Function]


class Point:
    """One watched attribute: module, dotted attribute, report field, and the wrapper's maker.

    ``field`` is what cannot be told without it; None where another point sees the same or where it
    tells only of a cold build. ``seen`` names the versions that were looked at.
    """

    def __init__(
        self, module: str, attribute: str, field: str | None, make: Maker, seen: str
    ) -> None:
        self.module = module
        self.attribute = attribute
        self.field = field
        self.make = make
        self.seen = seen


def install(point: Point, module: ModuleType, log: EventLog, tally: Tally) -> bool:
    """Wrap a point's attribute in its freshly imported module; return whether it was there."""
    owner: Any = module
    *parents, name = point.attribute.split(".")
    for parent in parents:
        owner = getattr(owner, parent, None)
        if owner is None:
            return False
    if name not in (owner.__dict__ if isinstance(owner, type) else vars(owner)):
        return False
    _replace(owner, name, lambda inner: point.make(inner, log, tally))
    return True


def _replace(owner: Any, name: str, make: Callable[[Function], Function]) -> None:
    """Wrap ``owner.name`` in place, keeping static and class methods what they are."""
    raw = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    kind = type(raw) if isinstance(raw, (staticmethod, classmethod)) else None
    inner = raw.__func__ if kind else raw
    wrapped = functools.wraps(inner)(make(inner))
    setattr(owner, name, kind(wrapped) if kind else wrapped)


def module_is_gone(name: str) -> bool:
    """Tell whether an installed package has no such module any more; imports nothing.

    A module that only was not needed yet is there; of a package that is not installed nothing can
    be gone.
    """
    top, *parts = name.split(".")
    package = sys.modules.get(top)
    if package is None:
        from importlib.util import find_spec

        spec = find_spec(top)
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
    else:
        places = list(getattr(package, "__path__", ()))
    places = [place for place in places if os.path.isdir(place)]
    return bool(places) and not any(_holds(place, parts) for place in places)


def _holds(place: str, parts: list[str]) -> bool:
    from importlib.machinery import all_suffixes

    path = os.path.join(place, *parts)
    return os.path.isdir(path) or any(os.path.isfile(path + suffix) for suffix in all_suffixes())

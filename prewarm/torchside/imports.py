"""Calls a function with a module as soon as somebody else has imported it; imports nothing itself.

A finder in front of ``sys.meta_path`` hands on what the others find and lets the found loader run.
Every Python with the shim on its path imports this file, so it needs nothing beside ``sys``.
"""

from __future__ import annotations

import sys
from _thread import get_ident

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Imported = Callable[[ModuleType], object]
    #: Called before a module's code runs; what it returns is called when the code has ended.
    Before = Callable[[ModuleType], Callable[[], None] | None]


def when_imported(names: frozenset[str], imported: Imported, before: Before | None = None) -> None:
    """Call ``imported`` once for each named module: now if it is there, else after its import.

    ``before`` is called just before the module's own code runs, where that is still to come. What
    it returns is called when the code has ended, also if it raised.
    """
    sys.meta_path.insert(0, _Finder(names, imported, before))
    for name in sorted(names):
        if name in sys.modules:
            imported(sys.modules[name])


class _Loader:
    """Runs the real loader, then tells of the module that it made."""

    def __init__(self, loader: Any, imported: Imported, before: Before | None) -> None:
        self._loader = loader
        self._imported = imported
        self._before = before

    def create_module(self, spec: ModuleSpec) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        ended = self._before(module) if self._before is not None else None
        try:
            # Before the code runs: torch's settings modules take no attribute afterwards.
            if module.__spec__ is not None:
                module.__spec__.loader = self._loader
            module.__loader__ = self._loader
            self._loader.exec_module(module)
        finally:
            if ended is not None:
                ended()
        self._imported(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Finder:
    """A meta path finder that only hands on what the others find."""

    def __init__(self, names: frozenset[str], imported: Imported, before: Before | None) -> None:
        self._names = names
        self._imported = imported
        self._before = before
        self._busy: set[int] = set()  # threads in the middle of a search; no threading.local here

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._names or get_ident() in self._busy:
            return None
        self._busy.add(get_ident())
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                if find is None or finder is self:
                    continue
                spec: ModuleSpec | None = find(name, path, target)
                if spec is not None and spec.loader is not None:
                    telling: Any = _Loader(spec.loader, self._imported, self._before)
                    spec.loader = telling
                    return spec
        finally:
            self._busy.discard(get_ident())
        return None

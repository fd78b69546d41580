"""The start reports that a deployment left below its private directory.

Owns finding and folding them. The folding is ``torchside``'s; it is loaded by its path under a name
of its own, so that nothing of ``torchside`` is imported here as prewarm's.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from prewarm.deploy.current import REPORTS
from prewarm.errors import ConfigError
from prewarm.present import TORCHSIDE

_LOADED = "prewarm_torchside_by_path"
_START = re.compile(r"([0-9]{1,20})-([0-9]{1,20})")
_NS_PER_S = 1_000_000_000

#: What one process tells of itself is some kB.
_LIMIT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Start:
    """One start of a deployment, and what its processes really did."""

    name: str
    at_s: float
    pid: int
    report: dict[str, Any]


def read_starts(into: Path, *, has_triton: bool) -> tuple[Start, ...]:
    """Return the starts that can be told, the oldest first; one that wrote no event tells nothing.

    Raises:
        OSError: a report cannot be read.
        ConfigError: something else stands where one should.
    """
    reports = into / REPORTS
    if not reports.is_dir():
        return ()
    found = ((_START.fullmatch(path.name), path) for path in reports.iterdir())
    starts = sorted(
        (int(match[1]), int(match[2]), path) for match, path in found if match and path.is_dir()
    )
    read_events, fold = torchside_by_path("events").read_events, torchside_by_path("report").fold
    told: list[Start] = []
    for at_ns, pid, path in starts:
        try:
            _require_files(path)
            if events := read_events(str(path)):
                report = fold(events, has_triton=has_triton)
                told.append(Start(path.name, at_ns / _NS_PER_S, pid, report))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"{path}: is no start report ({str(error)[:100]}); remove it", code="not_filled"
            ) from error
    return tuple(told)


def _require_files(report: Path) -> None:
    """Pass if nothing is there whose reading would not end."""
    for path in report.glob("*.jsonl"):
        if not path.is_file():
            raise ValueError(f"{path.name} is no file")
        if path.stat().st_size > _LIMIT_BYTES:
            raise ValueError(f"{path.name} is larger than {_LIMIT_BYTES:,} bytes")


def torchside_by_path(name: str) -> ModuleType:
    """Return a module of ``torchside``, loaded by its path."""
    if _LOADED not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            _LOADED, TORCHSIDE / "__init__.py", submodule_search_locations=[str(TORCHSIDE)]
        )
        assert spec is not None and spec.loader is not None
        sys.modules[_LOADED] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"{_LOADED}.{name}")

"""The stable fields of ``prewarm status --json``, from a row of the database. Pure.

Owns what the sums mean: cold and warm seconds are added over the declared calls, and so are eager
and compiled milliseconds, since a deployment makes every call. A sum that lacks a figure is null.
And what tells the environments of one model apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prewarm.environment import Environment, told_apart
from prewarm.store.quarantine import Quarantine
from prewarm.store.view import StatusRow

#: Below this, compiled is called no faster than eager: a difference this small is noise.
NO_FASTER_BELOW = 1.05


def status_fields(row: StatusRow, differs_in: Mapping[str, str | None]) -> dict[str, Any]:
    """Return one entry of ``status --json``."""
    record: Mapping[str, Any] = row.record or {}
    calls = [call for shape_set in record.get("shape_sets", ()) for call in shape_set["calls"]]
    eager_ms, compiled_ms = _sum(calls, "eager_ms"), _sum(calls, "compiled_ms")
    requires = record.get("requires")
    return {
        "model": row.model,
        "aliases": list(row.aliases),
        "environment": row.environment_id,
        "differs_in": dict(differs_in),
        "status": row.status,
        "reason": row.reason,
        "code": row.code,
        "requires": requires,
        "plain": row.status == "warm" and requires == [],
        "covers": record.get("covers"),
        "cold_s": _sum(calls, "cold_s"),
        "warm_s": _sum(calls, "warm_s"),
        "eager_ms": eager_ms,
        "compiled_ms": compiled_ms,
        "speedup": round(eager_ms / compiled_ms, 3) if eager_ms and compiled_ms else None,
        "bundle": record.get("bundle"),
        "compile": record.get("compile"),
        "shape_sets": record.get("shape_sets", []),
        "proof": record.get("proof"),
        "build_key": row.build_key,
        "attempts": row.attempts,
        "next_try_at": row.next_try_at,
        "log": row.log,
        "updated_at": row.updated_at,
    }


def with_several_environments(rows: Iterable[StatusRow]) -> dict[str, tuple[str, ...]]:
    """Return the environments of each model that was built in more than one."""
    found: dict[str, tuple[str, ...]] = {}
    for row in rows:
        found[row.model] = (*found.get(row.model, ()), row.environment_id)
    return {model: ids for model, ids in found.items() if len(ids) > 1}


def differences(
    several: Mapping[str, tuple[str, ...]], facts: Mapping[str, Mapping[str, str | None]]
) -> dict[tuple[str, str], dict[str, str | None]]:
    """Return by model and environment what tells it from the model's others, as far as is known."""
    known = {name: Environment.from_facts(found) for name, found in facts.items()}
    # The models of a registry have mostly the same environments.
    apart = {
        ids: told_apart({name: known[name] for name in ids if name in known})
        for ids in set(several.values())
    }
    return {
        (model, name): apart[ids].get(name, {}) for model, ids in several.items() for name in ids
    }


def quarantine_fields(quarantine: Quarantine) -> dict[str, Any]:
    """Return what ``status --json`` says of the bundles that were set aside."""
    return {
        "bundles": quarantine.bundles,
        "size_bytes": quarantine.size_bytes,
        "directory": str(quarantine.directory),
    }


def speed(fields: Mapping[str, Any]) -> str:
    """Say how compiled compares with eager, plainly where it is no faster."""
    speedup = fields["speedup"]
    if speedup is None:
        return ""
    if speedup < NO_FASTER_BELOW:
        return f"compiled is no faster than eager ({speedup:.2f}×)"
    return f"{speedup:.2f}×"


def _sum(calls: Iterable[Mapping[str, Any]], name: str) -> float | None:
    figures = [call.get(name) for call in calls]
    known = [float(figure) for figure in figures if figure is not None]
    return round(sum(known), 4) if known and len(known) == len(figures) else None

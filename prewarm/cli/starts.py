"""The last starts of an entry, as ``prewarm status`` tells them: in its table, one by one, as JSON.

Pure. Owns the words for what a start did. What it compiled of calls that nobody declared becomes
lines for the declaration in ``deploy/missing_calls.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prewarm.deploy.missing_calls import Missing, missing_calls
from prewarm.store.starts_view import StartRow, Starts
from prewarm.store.timestamp import epoch_seconds
from prewarm.store.view import StatusRow

#: Starts that are told one by one, and looked through for what is missing.
TOLD_STARTS = 10

#: Counts of a start report in the words of a person, in the order of what costs most.
_WORDS = {
    "graphs_compiled": ("graph compiled", "graphs compiled"),
    "cpp_compiled": ("C++ kernel compiled", "C++ kernels compiled"),
    "triton_compiled": ("Triton kernel compiled", "Triton kernels compiled"),
    "benchmarked_autotuning": ("configuration tuned", "configurations tuned"),
    "benchmarked_coordinate_descent": ("tuned by descent", "tuned by descent"),
    "compilers_started": ("compiler started", "compilers started"),
    "graphs_bypassed": ("graph past the FX cache", "graphs past the FX cache"),
    "aot_bypassed": ("graph past the AOT cache", "graphs past the AOT cache"),
    "fx_misses": ("FX miss", "FX misses"),
    "aot_misses": ("AOT miss", "AOT misses"),
    "recompiles": ("frame traced again", "frames traced again"),
    "limits_hit": ("recompile limit hit", "recompile limits hit"),
    "files_changed": ("file written", "files written"),
}

_WARM = {True: "compiled", False: "warm", None: "cannot tell"}


def starts_fields(starts: Starts | None, row: StatusRow) -> dict[str, Any]:
    """Return what ``status`` says of an entry's starts; ``as_json`` makes JSON of it."""
    newest = starts.newest if starts is not None else ()
    return {
        "starts_kept": starts.kept if starts is not None else 0,
        "starts": [_fields(start) for start in newest],
        "missing": _missing_calls(newest, row),
    }


def as_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with these fields as it stands in JSON."""
    return {**fields, "missing": [one.to_dict() for one in fields["missing"]]}


def _missing_calls(newest: Sequence[StartRow], row: StatusRow) -> tuple[Missing, ...]:
    compiled = [start.summary.graphs for start in newest if start.compiled]
    record = row.record if any(compiled) else None
    if record is None:
        return ()
    return missing_calls(compiled, (record.get("proof") or {}).get("declared"))


def _fields(row: StartRow) -> dict[str, Any]:
    summary = row.summary
    return {
        "at": row.at,
        "uid": row.uid,
        "builder": row.builder,
        "bundle": row.bundle_sha256,
        "first_answer_s": row.first_answer_s,
        "compiled": row.compiled,
        "counts": summary.counts,
        "cannot_tell": list(summary.cannot_tell),
    }


def last_start(fields: Mapping[str, Any], age: str) -> str:
    """Say in a few words what the newest start was; ``age`` is how long ago."""
    newest = fields["starts"][0]
    return ", ".join((f"{age} ago", _WARM[newest["compiled"]], *_seconds(newest)))


def start_lines(entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is told of an entry's starts one by one, and what to declare."""
    starts = entry["starts"]
    if not starts:
        yield f"{entry['model']}: no start was reported"
        return
    of = f", the last {len(starts)} of {entry['starts_kept']}" * (
        len(starts) < entry["starts_kept"]
    )
    yield f"{entry['model']}: starts{of}"
    for start in starts:
        yield f"  {', '.join(_parts(start))}"
    for missing in entry["missing"]:
        yield _missing(missing, len(starts))
        yield from (f"    {line}" for line in missing.toml.splitlines())


def missing_note(missing: Missing) -> str:
    """Say in the table that a call is missing in the declaration."""
    return f"a start compiled {_what(missing)}, not declared (see `prewarm status MODEL`)"


def _what(missing: Missing) -> str:
    if missing.like is None:
        return "a call like none of the declared shape sets"
    rows = [", ".join(f"{name} = {size}" for name, size in row.items()) for row in missing.sizes]
    return f"{missing.like} with {'; '.join(rows)}"


def _missing(missing: Missing, of: int) -> str:
    return (
        f"  compiled by {missing.starts} of {of} starts and not declared: {_what(missing)}; "
        "add to prewarm.toml:"
    )


def _parts(start: Mapping[str, Any]) -> Iterator[str]:
    yield start["at"]
    if start["bundle"] is not None:
        yield f"bundle {start['bundle'][:12]} of {start['builder'] or 'an unknown builder'}"
    else:
        yield "no bundle"
    yield from (f"first answer after {told}" for told in _seconds(start))
    yield from [f"user {start['uid']}"] if start["uid"] is not None else []
    if start["counts"]:
        yield from (
            f"{count} {words[count > 1]}"
            for name, words in _WORDS.items()
            if (count := start["counts"].get(name))
        )
    elif start["compiled"] is False:
        yield "compiled nothing"
    if start["cannot_tell"]:
        yield f"cannot tell: {' '.join(start['cannot_tell'])}"


def _seconds(start: Mapping[str, Any]) -> tuple[str, ...]:
    seconds = start["first_answer_s"]
    return () if seconds is None else (f"{seconds:.1f} s",)


def age_s(fields: Mapping[str, Any], now_s: float) -> float:
    """Return how long ago the newest start was reported."""
    return now_s - epoch_seconds(fields["starts"][0]["at"])

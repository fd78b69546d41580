"""``prewarm drift``: what a deployment compiled by itself since its directory was filled.

Owns the printing. What is read and compared is ``deploy/drift.py``'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from prewarm.cli.options import example, json_option
from prewarm.cli.status import size
from prewarm.deploy.contrast import told
from prewarm.deploy.drift import Drift, OwnGraph, StartDrift, read_drift
from prewarm.store.timestamp import timestamp

_KINDS = {
    "graphs": "graphs",
    "aot_entries": "AOT entries",
    "cpp_kernels": "C++ kernels",
    "triton_kernels": "Triton kernels",
    "tuned_configs": "tuned configurations",
    "other": "other files",
}


@click.command("drift", epilog=example("prewarm drift /run/minilm"))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@json_option
def command(directory: Path, as_json: bool) -> int:
    """Tell what a deployment compiled by itself, and which declared field to look at.

    DIR is the --into of its hook. Ends with 1 if anything was compiled.
    """
    drift = read_drift(directory)
    if as_json:
        click.echo(json.dumps(drift.to_dict(), indent=2))
    else:
        click.echo("\n".join(_lines(drift)))
        if drift.compiled:
            click.echo(f"prewarm: {_summary(drift)}", err=True)
    return 1 if drift.compiled else 0


def _lines(drift: Drift) -> Iterator[str]:
    yield f"{', '.join(drift.models)}: filled {timestamp(drift.filled_at_s)}"
    yield f"added since: {_added(drift)}"
    if not drift.starts:
        yield "cannot tell what a start did: no start report (was the shim on its PYTHONPATH?)"
    if drift.earlier:
        yield f"{drift.earlier} starts from before are not told: they had other bundles"
    for start in drift.starts:
        yield from _start(start)


def _added(drift: Drift) -> str:
    added = drift.added
    if added is None:
        return "cannot tell, its listing is missing; run `prewarm hook` with this --into again"
    if not added.files and not added.changed:
        return "nothing"
    kinds = ", ".join(f"{count} {_KINDS[kind]}" for kind, count in added.kinds.items())
    told = f"{added.files} files, {size(added.size_bytes)} ({kinds})" if added.files else "no file"
    return told + (f"; {added.changed} listed ones changed" if added.changed else "")


def _start(start: StartDrift) -> Iterator[str]:
    first = start.first_run_s
    after = f", first graph run after {first:.1f} s" if first is not None else ""
    own = f"{len(start.own)} not, {start.seconds:.1f} s" if start.own else "none compiled"
    yield (
        f"start {timestamp(start.start.at_s)} (pid {start.start.pid}){after}: "
        f"{start.found} graphs found, {own}"
    )
    if start.unseen:
        yield f"  cannot tell: {', '.join(start.unseen)}"
    for one in start.own:
        yield from _graph(one)
    if start.counts and not start.own:
        counts = ", ".join(f"{name} {count}" for name, count in start.counts.items())
        yield f"  {counts}"


def _graph(one: OwnGraph) -> Iterator[str]:
    seconds = one.graph.get("seconds")
    took = f", {seconds:.1f} s" if isinstance(seconds, int | float) else ""
    reason = f" ({one.graph['reason']})" if one.graph.get("reason") else ""
    yield f"  {_named(one.graph)}: {one.graph['outcome']}{took}{reason}"
    for difference in one.contrast.differences:
        yield f"    {told(difference)}"
    for line in one.contrast.advice:
        yield f"    -> {line}"
    if one.contrast.note:
        yield f"    {one.contrast.note}"


def _named(graph: Mapping[str, Any]) -> str:
    frame = graph.get("frame")
    if not frame:
        return "a graph of unknown origin"
    of = f" of {frame['of']}" if frame.get("of") else ""
    inputs = ", ".join(_input(given) for given in graph.get("inputs") or ())
    return f"{frame['name']}{of} for {inputs or 'no tensors'}"


def _input(given: Mapping[str, Any]) -> str:
    sizes = given.get("sizes") or given.get("shape") or ()
    return f"{given['name']} = {' × '.join(str(one) for one in sizes) or 'scalar'} {given['dtype']}"


def _summary(drift: Drift) -> str:
    graphs = sum(len(start.own) for start in drift.starts)
    starts = sum(1 for start in drift.starts if start.compiled)
    if not starts:
        return f"{drift.directory} was added to by a start that left no report"
    return f"{graphs} graphs were compiled by {starts} of {len(drift.starts)} starts"

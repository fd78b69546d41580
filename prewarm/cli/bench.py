"""``prewarm bench``: one model, started in every way on this machine, side by side."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click

from prewarm.build.arms import Arm, ArmResult, SideBySide, Start
from prewarm.build.side_by_side import REPEATS, run_side_by_side
from prewarm.cli.columns import Cell, aligned
from prewarm.cli.options import example, json_option, settings_options
from prewarm.cli.progress import Progress
from prewarm.cli.scan import stop_on_signals
from prewarm.config import Settings
from prewarm.store.whole_file import write_whole

#: The seconds of a start in the order in which they pass.
_SECONDS: dict[str, Callable[[Start], float]] = {
    "before": lambda start: start.before_s,
    "import": lambda start: start.import_s,
    "build": lambda start: start.build_s,
    "first": lambda start: start.first_s,
    "second": lambda start: start.second_s,
    "whole": lambda start: start.whole_s,
}
_TITLES = ("start", *_SECONDS, "steady", "graphs", "kernels", "configs", "compilers", "on disk")


@click.command(
    "bench", epilog=example("prewarm bench minilm/v1", "prewarm bench gpt2/v1 -o gpt2.json")
)
@click.argument("model")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the JSON here too.")
@click.option(
    "--repeats",
    type=click.IntRange(1, 20),
    default=REPEATS,
    show_default=True,
    help="Fresh processes of each arm; the cold start is made once.",
)
@settings_options
@json_option
def command(
    settings: Settings, model: str, output: Path | None, repeats: int, as_json: bool
) -> int:
    """Start MODEL in every way and show the seconds side by side.

    Eager, cold, from torch's own warm directory (its first and second start), from a Mega-Cache in
    an empty directory, and from prewarm's bundle: the hook into an empty directory, then the start.
    Each is a fresh process. MODEL must be published here; nothing is published or changed. Give it
    a machine that does nothing else.
    """
    with stop_on_signals() as stop, Progress(quiet=as_json) as progress:
        found = run_side_by_side(settings, model, repeats=repeats, report=progress, stop=stop)
    text = json.dumps(found.to_dict(), indent=2) + "\n"
    if output is not None:
        write_whole(output, text.encode())
    click.echo(text if as_json else "\n".join(_lines(found)), nl=not as_json)
    return 0


def _lines(found: SideBySide) -> list[str]:
    facts = found.environment
    needs = " (with the shim)" if "shim" in found.requires else ""
    machine = f"{facts.get('device')}, torch {facts.get('torch')}, Python {facts.get('python')}"
    head = f"{found.model}: {found.status}{needs}, {found.mode}; {machine}"
    rows = [_row(result) for result in found.results]
    return [head, *aligned(_TITLES, rows, right=frozenset(_TITLES[1:])), *_told(found)]


def _row(result: ArmResult) -> list[Cell]:
    seconds = [Cell(_seconds(result, of)) for of in _SECONDS.values()]
    tuned = _sum(result, "benchmarked_autotuning", "benchmarked_coordinate_descent")
    kernels = _sum(result, "triton_compiled", "cpp_compiled")
    counts = [
        result.counted("graphs_compiled"),
        kernels,
        tuned,
        result.counted("compilers_started"),
    ]
    colour = "green" if result.arm is Arm.PREWARM else None
    steady = f"{result.median(lambda start: start.steady_ms):.2f} ms"
    told = [Cell("?" if count is None else str(count)) for count in counts]
    return [Cell(result.arm.value, colour), *seconds, Cell(steady), *told, Cell(_disk(result))]


def _seconds(result: ArmResult, of: Callable[[Start], float]) -> str:
    least, most = result.span(of)
    text = f"{result.median(of):.2f}"
    return text if len(result.starts) == 1 else f"{text} ({least:.2f}-{most:.2f})"


def _sum(result: ArmResult, *names: str) -> int | str | None:
    found = [result.counted(name) for name in names]
    numbers = [count for count in found if isinstance(count, int)]
    return None if None in found else sum(numbers) if numbers else found[0]


def _disk(result: ArmResult) -> str:
    if result.stored_bytes is None:
        return "-"
    return f"{result.stored_bytes / 1e6:.1f} MB, {result.files} files"


def _told(found: SideBySide) -> list[str]:
    ratios = found.ratios()
    over = [
        ("cold", "first_answer_cold"),
        ("upstream's warm directory", "first_answer_upstream_first"),
        ("its second start", "first_answer_upstream_second"),
        ("Mega-Cache", "first_answer_mega_cache"),
    ]
    parts = [f"{ratios[name]:.1f} times {word}" for word, name in over if ratios.get(name)]
    above = ratios.get("whole_start_above_eager_s")
    tail = f"; its whole start takes {above:+.1f} s over eager's" if above is not None else ""
    return ["", f"first answer from prewarm's bundle is as fast as {', '.join(parts)}{tail}"]

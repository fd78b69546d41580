"""``prewarm demo``: the whole story on a small registry made on the spot."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from prewarm.build.scan_run import ScanResult, run_scan
from prewarm.build.verdict import ZEROS
from prewarm.cli.demo_registry import write_demo_registry
from prewarm.cli.options import example
from prewarm.cli.progress import Progress
from prewarm.cli.scan import stop_on_signals
from prewarm.config import Settings
from prewarm.errors import ConfigError

_NEXT = """\
What is next
  prewarm init CHECKPOINT            writes a first prewarm.toml for your own model
  prewarm doctor                     tells whether this machine can build it
  prewarm scan --registry DIR        builds, proves and publishes what DIR holds
  prewarm hook MODEL --env-file F    fetches it for a deployment; start your server with F\
"""


@click.command(epilog=example("prewarm demo", "prewarm demo --into /tmp/prewarm-demo"))
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Make the demo in this directory and keep it. Default: a temporary one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; no progress.")
def demo(into: Path | None, as_json: bool) -> None:
    """Make a small registry, build it, and show cold against warm starts with their proof.

    Takes one to two minutes on two cores. Needs torch and a C++ compiler.
    """
    if find_spec("torch") is None:
        raise ConfigError(
            f"the demo needs torch in {sys.executable}; "
            "run: pip install 'torch-prewarm[transformers]'"
        )
    with _directory(into) as root:
        registry = root / "registry"
        if not registry.exists():
            write_demo_registry(registry)
        settings = Settings(
            registry=registry,
            cache_dir=root / "cache",
            state_dir=root / "state",
            builder="demo",
            settle_s=0.2,
        )
        if not as_json:
            click.echo(
                f"A small registry lies in {registry}; each model is compiled under "
                "max-autotune, then started again from its bundle in a fresh process.\n"
            )
        with stop_on_signals() as stop, Progress(quiet=as_json) as progress:
            result = run_scan(settings, report=progress, stop=stop)
        if as_json:
            click.echo(json.dumps([entry.record for entry in result.entries], indent=2))
        else:
            _tell(result)
            click.echo(_NEXT)
            if into is not None:
                click.echo(f"\nEverything was kept in {root}.")
    if not result.all_warm:
        raise SystemExit(1)


@contextmanager
def _directory(into: Path | None) -> Iterator[Path]:
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        yield into.resolve()
        return
    path = Path(tempfile.mkdtemp(prefix="prewarm-demo-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _tell(result: ScanResult) -> None:
    click.echo(f"\n{'model':<16}{'status':<10}{'cold':>9}{'warm':>9}{'faster':>9}  proof")
    sharing: dict[str, str] = {}
    for entry in result.entries:
        if entry.record is None:
            click.echo(f"{entry.model:<16}{entry.status.value:<10}  {entry.reason}")
            continue
        cold_s, warm_s = _seconds(entry.record, "cold_s"), _seconds(entry.record, "warm_s")
        faster = f"{cold_s / warm_s:.1f}×" if warm_s else "–"
        digest = str(entry.bundle_sha256)
        cold = "–" if digest in sharing else f"{cold_s:.1f} s"  # it was never compiled itself
        click.echo(
            f"{entry.model:<16}{entry.status.value:<10}{cold:>9}{warm_s:>7.1f} s{faster:>9}"
            f"  {proof_line(entry.record['proof'])}"
        )
        if digest in sharing:
            click.echo(f"{'':<16}shares the bundle of {sharing[digest]}: proven, not compiled")
        sharing.setdefault(digest, entry.model)
    click.echo(
        "\ncold and warm: seconds from torch.compile to the first answers, fresh processes\n"
    )


def _seconds(record: Mapping[str, Any], name: str) -> float:
    return float(
        sum(call[name] or 0.0 for shapes in record["shape_sets"] for call in shapes["calls"])
    )


def proof_line(proof: Mapping[str, Any]) -> str:
    """Return the counts of a proof that are not zero, or say that all are."""
    counts = {field: proof.get(field) for field, _, _ in ZEROS}
    watched = {field: count for field, count in counts.items() if count != "n/a"}
    if all(count == 0 for count in watched.values()):
        return (
            f"{len(watched)} of {len(watched)} counts are 0 (graphs, kernels, compilers, files, …)"
        )
    return ", ".join(f"{field} {count}" for field, count in watched.items() if count != 0)

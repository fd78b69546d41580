"""``prewarm init``: a first ``prewarm.toml`` from a checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from prewarm.cli.options import example, json_option
from prewarm.errors import ConfigError, RegistryError
from prewarm.registry.draft import draft_declaration
from prewarm.registry.names import FILE_NAME
from prewarm.store.whole_file import write_whole

_PATH = click.Path(path_type=Path)


@click.command("init", epilog=example("prewarm init /models/minilm/v1"))
@click.argument("checkpoint", type=_PATH)
@click.option("-o", "--output", type=_PATH, help="Write it here. Default: beside the weights.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: what is found here.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@json_option
def command(
    checkpoint: Path, output: Path | None, device: str | None, force: bool, as_json: bool
) -> int:
    """Write a first prewarm.toml for CHECKPOINT, guessed from its files.

    Read it before you scan: loader, class, dtype and above all the input sizes that your server
    uses are yours to state.
    """
    # Not Path.exists, which raises below a directory that is closed to us.
    if not os.access(checkpoint, os.R_OK, effective_ids=True):
        raise RegistryError(
            f"{checkpoint}: no such checkpoint that can be read; name its directory or .pt2 file"
        )
    text = draft_declaration(checkpoint, device=device)
    target = output or (checkpoint if checkpoint.is_dir() else checkpoint.parent) / FILE_NAME
    if target.exists() and not force:
        raise ConfigError(f"{target}: is there already; pass --force to replace it, or -o FILE")
    write_whole(target, text.encode())
    if as_json:
        click.echo(json.dumps({"file": str(target)}))
    else:
        click.echo(f"{target}: written; read it, state your input sizes, then run:")
        click.echo("  prewarm scan --registry DIR     (DIR holds the checkpoint)")
    return 0

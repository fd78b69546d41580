"""Which model a name means here: a checkpoint of the registry, an alias, or what is published."""

from __future__ import annotations

import difflib

from prewarm.serve.refused import Refused
from prewarm.serve.shelf import Shelf
from prewarm.store.database import Database


def model_named(name: str, shelf: Shelf, database: Database) -> str:
    """Return the model's own name.

    Raises:
        Refused: nobody knows it; the nearest name is told.
    """
    wanted = name.strip("/")
    checkpoint = database.checkpoint_named(wanted)
    if checkpoint is not None:
        return checkpoint.name
    published = shelf.named.get(wanted)
    if published:
        return published[0].model
    if database.entries_of(wanted):
        return wanted
    raise _unknown(wanted, shelf, database)


def _unknown(name: str, shelf: Shelf, database: Database) -> Refused:
    present = [one for one in database.checkpoints() if one.retired_at is None]
    names = {known for one in present for known in (one.name, *one.aliases)} | shelf.named.keys()
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"it knows {len(names)}; see `prewarm status`"
    return Refused(f"{name}: is no model that this builder knows; {hint}", code="unknown_model")

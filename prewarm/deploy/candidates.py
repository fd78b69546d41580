"""The published entries that a name or path means, and the environment present for each.

Hook, ``explain`` and ``doctor`` begin here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from prewarm.deploy.published import Published
from prewarm.deploy.select import named, not_published, without_own_variables
from prewarm.environment import Environment
from prewarm.present import present_environment


def candidates_for(
    model: str, published: Sequence[Published]
) -> tuple[tuple[Published, ...], str | None]:
    """Return the entries that ``model`` means, and why they are no proof for it, if so.

    Raises:
        NotWarm: there are none.
        RegistryError: a path cannot be read.
    """
    candidates, caveat = named(published, model), None
    # Not Path.exists, which raises for a name that is too long.
    if not candidates and os.path.lexists(model):
        # The registry's side is slow to import, and a name that is published does not need it.
        from prewarm.deploy.by_path import published_for_path

        candidates, caveat = published_for_path(Path(model), published)
    if not candidates:
        raise not_published(model, published)
    return candidates, caveat


def device_of(published: Published) -> str:
    """Return the kind of device that an entry was built for, as a declaration names it."""
    return "cpu" if published.environment.get("device") == "cpu" else "cuda"


class Present:
    """The environment present for an entry's kind of model, gathered once for each kind."""

    def __init__(self, interpreter: tuple[str, ...]) -> None:
        self._interpreter = interpreter
        self._gathered: dict[tuple[str, int, str], Environment] = {}

    def __call__(self, published: Published) -> Environment:
        """Gather the environment, less what the entry's own env file sets."""
        library = (published.environment.get("library") or "").split(" ")[0]
        kind = (device_of(published), published.threads, library)
        if kind not in self._gathered:
            self._gathered[kind] = present_environment(
                self._interpreter,
                device=device_of(published),
                threads=published.threads,
                library=library,
            )
        return without_own_variables(self._gathered[kind], published)

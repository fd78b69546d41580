"""What a proof came to: what its processes saw, the verdict on it, and what a start needs. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prewarm.build.caveat import weigh
from prewarm.build.verdict import Verdict

#: The word in a manifest's ``requires`` for a start that is warm with the shim alone.
SHIM = "shim"


@dataclass(frozen=True, slots=True)
class Proven:
    """The answers of the children, the declared order first, and the verdict on them.

    ``needs_shim`` is whether they were made with the shim's mends, since a plain start was not
    clean.
    """

    proofs: tuple[dict[str, Any], ...]
    verdict: Verdict
    needs_shim: bool = False

    @property
    def requires(self) -> tuple[str, ...]:
        """What a deployment must have beside the variables."""
        return (SHIM,) if self.needs_shim else ()

    def weighed(self, caveat: Verdict | None) -> Proven:
        """Return this with the caveat of the bundle in place of a clean verdict."""
        return replace(self, verdict=weigh(self.verdict, caveat))

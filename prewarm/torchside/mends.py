"""What the shim changes in a deployment's torch, so that it starts as the proof with the shim did.

Each ``Mend`` waits for one module of torch and says in which releases it is needed. A mend that
fails leaves upstream's behaviour and one line on standard error. ``PREWARM_MENDS`` switches them:
unset is all, ``0`` is none, else a list of names.
"""

from __future__ import annotations

import sys

from . import upstream_mends
from .imports import when_imported

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from .deployment import Deployment

VARIABLE = "PREWARM_MENDS"


class Mend:
    """One change: its name, the module it waits for, and what does it.

    ``make`` returns whether this release needed it.
    """

    def __init__(
        self, name: str, module: str, make: Callable[[ModuleType, Deployment], bool]
    ) -> None:
        self.name = name
        self.module = module
        self.make = make


def _recompile_limit(module: ModuleType, deployment: Deployment) -> bool:
    if deployment.recompile_limit is None:
        return False
    return upstream_mends.raise_recompile_limit(module, deployment.recompile_limit)


def _retuning(module: ModuleType, deployment: Deployment) -> bool:
    return upstream_mends.keep_tuned_configs(module)


MENDS = (
    Mend("recompile_limit", "torch._dynamo.config", _recompile_limit),
    Mend("retuning", "torch._inductor.runtime.triton_heuristics", _retuning),
)


class Mends:
    """The mends of this process; ``made`` names those that were needed and could be made."""

    def __init__(self, deployment: Deployment, environ: Mapping[str, str]) -> None:
        self.made: list[str] = []
        self._deployment = deployment
        switch = environ.get(VARIABLE)
        named = switch.replace(",", " ").split() if switch else None
        self._waiting = {mend.module: mend for mend in MENDS if named is None or mend.name in named}

    def start(self) -> None:
        """Begin to wait for the modules; nothing of torch is imported by it."""
        when_imported(frozenset(self._waiting), self._imported)

    def _imported(self, module: ModuleType) -> None:
        mend = self._waiting.get(module.__name__)
        if mend is None:
            return
        try:
            if mend.make(module, self._deployment):
                self.made.append(mend.name)
        except Exception as error:
            sys.stderr.write(
                "prewarm: %s is left as it is: %s: %s\n" % (mend.name, type(error).__name__, error)
            )

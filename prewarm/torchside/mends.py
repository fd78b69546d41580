"""What the shim changes in a deployment's torch, so that it starts as the proof did, and sooner.

Each ``Mend`` waits for one module of torch and says in which releases it is needed. A mend that
fails leaves upstream's behaviour and one line on standard error. ``PREWARM_MENDS`` switches them:
unset is all, ``0`` is none, else a list of names.

- ``recompile_limit``, ``retuning``, ``triton_groups``, ``ptxas`` and ``precompiled_headers`` decide
  what a start compiles and tunes; an entry may need them.
- ``instruction_set``, ``guard_timing``, ``trace_names``, ``templates`` and ``collector`` only save
  work that each warm start repeats; nothing that is computed depends on them.
- ``comparison`` holds what was recorded against this process, and comes first (comparison.py).
"""

from __future__ import annotations

import os
import sys

from . import collector, instruction_sets, upstream_mends, upstream_tuned
from .imports import when_imported

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from types import ModuleType

    from .comparison import Comparison
    from .deployment import Deployment

    Make = Callable[[ModuleType, Deployment], bool]
    Before = Callable[[ModuleType], Callable[[], None]]

VARIABLE = "PREWARM_MENDS"

#: The name of the last comparison, which is switched as the mends are.
COMPARISON = "comparison"

_GRAPHS = "torch._inductor.compile_fx"


class Mend:
    """One change: its name, the module it waits for, and what does it.

    ``make`` returns whether this release needed it. ``before`` is called before the module's own
    code runs, and returns what is called after it.
    """

    def __init__(self, name: str, module: str, make: Make, before: Before | None = None) -> None:
        self.name = name
        self.module = module
        self.make = make
        self.before = before


def _recompile_limit(module: ModuleType, deployment: Deployment) -> bool:
    if deployment.recompile_limit is None:
        return False
    return upstream_mends.raise_recompile_limit(module, deployment.recompile_limit)


def _retuning(module: ModuleType) -> bool:
    forgot = upstream_mends.keep_tuned_configs(module)
    return upstream_tuned.look_at_present_place(module) or forgot


def _nothing(module: ModuleType, deployment: Deployment) -> bool:
    return False


MENDS = (
    Mend("recompile_limit", "torch._dynamo.config", _recompile_limit),
    Mend(
        "retuning",
        "torch._inductor.runtime.triton_heuristics",
        lambda module, _: _retuning(module),
    ),
    Mend(
        "triton_groups",
        "triton.runtime.cache",
        lambda module, _: upstream_tuned.look_beside_group(module),
    ),
    Mend(
        "ptxas",
        "torch._inductor.runtime.compile_tasks",
        lambda module, _: upstream_tuned.settle_ptxas(module),
    ),
    Mend(
        "precompiled_headers",
        "torch._inductor.config",
        lambda module, _: upstream_mends.leave_headers_alone(module),
    ),
    Mend(
        "instruction_set",
        instruction_sets.MODULE,
        lambda module, _: instruction_sets.reuse(module, os.environ),
    ),
    Mend(
        "guard_timing",
        "torch._dynamo.guards",
        lambda module, _: upstream_mends.skip_guard_timing(module),
    ),
    Mend(
        "trace_names",
        "torch._dynamo.symbolic_convert",
        lambda module, _: upstream_mends.skip_trace_names(module),
    ),
    Mend(
        "templates",
        "torch._inductor.codegen.common",
        lambda module, _: upstream_mends.compile_templates_late(module),
    ),
    Mend("collector", "torch._dynamo", _nothing, collector.quiet_import),
    Mend(
        "collector",
        "torch._dynamo.convert_frame",
        lambda module, _: collector.quiet_frames(module),
    ),
)


class Mends:
    """The mends of this process; ``made`` names those that were needed and could be made."""

    def __init__(
        self,
        deployment: Deployment,
        environ: MutableMapping[str, str],
        comparison: Comparison | None = None,
    ) -> None:
        self.made: list[str] = []
        self._deployment = deployment
        self._environ = environ
        self._comparison = comparison
        switch = environ.get(VARIABLE)
        named = switch.replace(",", " ").split() if switch else None
        self._compares = comparison is not None and (named is None or COMPARISON in named)
        self._waiting = {mend.module: mend for mend in MENDS if named is None or mend.name in named}

    def start(self, torch: ModuleType | None = None) -> None:
        """Compare, set the deployment's variables and begin to wait for the modules.

        Nothing of torch is imported by it; ``torch`` is its package, whose code has not run yet.
        """
        self._compare(torch)
        when_imported(frozenset(self._waiting), self._imported, self._before)

    def _compare(self, torch: ModuleType | None) -> None:
        caches = True
        if self._comparison is not None and self._compares:
            try:
                place = getattr(torch, "__file__", None)
                self._comparison.start(os.path.dirname(place) if place else None)
            except Exception as error:
                sys.stderr.write(
                    "prewarm: this process is not compared: %s: %s\n"
                    % (type(error).__name__, error)
                )
            caches = not self._comparison.refused
        self._deployment.set_variables(self._environ, caches=caches)
        if self._compares and self._comparison is not None and self._deployment.has_device:
            when_imported(frozenset((_GRAPHS,)), self._comparison.watch_device)

    def _before(self, module: ModuleType) -> Callable[[], None] | None:
        mend = self._waiting.get(module.__name__)
        return mend.before(module) if mend is not None and mend.before is not None else None

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

"""What a start misses whose Python takes no ``sitecustomize`` from ``PYTHONPATH``. Pure."""

from __future__ import annotations

from dataclasses import replace

from prewarm.deploy.outcome import Miss, OnMiss, Outcome
from prewarm.deploy.server_command import ISOLATING
from prewarm.errors import NotWarm


def without_shim(outcome: Outcome, flag: str | None, *, on_miss: OnMiss) -> Outcome:
    """Return the outcome of a hook for a Python with this flag (``-I``), if it keeps the shim out.

    Raises:
        NotWarm: with ``on_miss`` "fail", a model needs the shim.
    """
    if flag is None or not outcome.started:
        return outcome
    why = f"with {flag} its Python {ISOLATING[flag[1:]]}, so the shim does not run"
    needing = [found.model for found in outcome.started if "shim" in found.published.entry.requires]
    misses = tuple(
        Miss(
            model,
            NotWarm(
                f"{model}: {why}, without which it is not warm; start it without {flag}",
                code="no_shim",
            ),
        )
        for model in needing
    )
    if misses and on_miss == "fail":
        raise misses[0].error
    told = () if misses else (f"{why}: the variables alone make it warm, and no report is made",)
    return replace(outcome, misses=outcome.misses + misses, warnings=outcome.warnings + told)

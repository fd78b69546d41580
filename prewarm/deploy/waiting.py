"""Waiting for models that are not published yet.

Owns what is worth waiting for, and for how long: a builder is asked to take the model first and
tells where it stands; a directory, or a builder that takes no wishes, is looked at again and again.
"""

from __future__ import annotations

import time

from prewarm.deploy.candidates import candidates_for
from prewarm.deploy.choosing import Choice, Choosing
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.outcome import Miss, Tell
from prewarm.errors import ManifestUnavailable, NotWarm, PrewarmError

#: Misses that a builder at work may mend.
_WORTH = frozenset({"not_published", "environment_differs", "no_manifest", "unreachable"})
#: A builder that does not answer now may do so later.
_LATER = frozenset({"unreachable", "timed_out", "busy", "too_many", "no_manifest"})
#: A builder that takes no wish from here: then what it publishes is looked at.
_NO_WISH = frozenset({"token_needed", "forbidden", "not_found"})

_PUBLISHED = frozenset({"warm", "partial"})
_ENDS = frozenset({"failed", "uncacheable", "retired"})

#: What is asked for at once, so that whoever waits sees that it goes on.
_ASK_S = 15.0
_LOOK_S = 1.0
#: A checkpoint that was just copied is known by then.
_UNKNOWN_S = 30.0


class Waits:
    """The time that is left, and which models need no more waiting, with the builder's reason."""

    def __init__(self, wait_s: float, tell: Tell) -> None:
        self.ends = Deadline(wait_s, option="--wait")
        self.final: dict[str, PrewarmError | None] = {}
        self.takes_wishes = True
        self.notes: list[str] = []
        self._tell = tell
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """For how long it has been waited."""
        return time.monotonic() - self._began_s

    def tell(self, what: str) -> None:
        """Tell what is waited for."""
        self._tell(f"{what} ({self.elapsed_s:.0f} s)")

    def look_later(self, what: str) -> None:
        """Do nothing for a while.

        Raises:
            ManifestUnavailable: the time is over.
        """
        self.tell(what)
        self.ends.pause(_LOOK_S)


def wait_for(choosing: Choosing, choice: Choice, warnings: list[str], tell: Tell) -> Choice:
    """Return the choice when nothing is missing that waiting could bring, or the time is over."""
    waits = Waits(choosing.wanted.wait_s, tell)
    asked_for: set[str] = set()
    while missing := _worth_waiting(choosing, choice[1], waits):
        try:
            for model in missing:
                if model not in asked_for:
                    asked_for.add(model)
                    _wait(choosing, model, waits, most_s=0.0)
            if missing[0] not in waits.final:
                _wait(choosing, missing[0], waits, most_s=_ASK_S)
        except ManifestUnavailable:
            break  # the time is over
        warnings.clear()
        choice = choosing.run(warnings)
    warnings += waits.notes
    return choice[0], [_with_reason(miss, waits) for miss in choice[1]]


def _worth_waiting(choosing: Choosing, misses: list[Miss], waits: Waits) -> list[str]:
    models: list[str] = []
    for miss in misses:
        if miss.error.code in _WORTH:
            models += choosing.wanted.models if miss.model is None else [miss.model]
    return [model for model in models if model not in waits.final]


def _wait(choosing: Choosing, model: str, waits: Waits, *, most_s: float) -> None:
    """Wait until a model may be published, ``most_s`` at most; with 0 only wish for it.

    Raises:
        ManifestUnavailable: the time is over.
    """
    if not waits.takes_wishes:
        if most_s:
            waits.look_later(f"{model}: is not published yet")
        return
    wait_s = waits.ends.left_s(most_s) if most_s else 0.0
    asked_s = time.monotonic()
    try:
        wished = choosing.source.wish(model, _facts(choosing, model), wait_s)
    except ManifestUnavailable as error:
        _not_taken(error, model, waits, most_s)
        return
    if wished is None:
        waits.takes_wishes = False
    elif wished.status in _PUBLISHED:
        # It is chosen now, or it is for another environment, which is told.
        waits.final[model] = None
    elif wished.status in _ENDS:
        reason = f": {wished.reason}" if wished.reason else ""
        waits.final[model] = NotWarm(f"{model}: is {wished.status} at its builder{reason}")
    else:
        stands = f"{model}: {wished.status or 'looked for'} at its builder"
        if most_s and time.monotonic() - asked_s < _LOOK_S:
            # One that answers at once though it was asked to wait is not asked without a pause.
            waits.look_later(stands)
        else:
            waits.tell(stands)


def _not_taken(error: ManifestUnavailable, model: str, waits: Waits, most_s: float) -> None:
    if error.code in _NO_WISH:
        waits.takes_wishes = False
        waits.notes.append(f"{error}; so the model was not asked for, only waited for")
    elif error.code == "unknown_model" and waits.elapsed_s < _UNKNOWN_S:
        if most_s:
            waits.look_later(f"{model}: is not known to its builder yet")
    elif error.code in _LATER:
        if most_s:
            waits.look_later("the builder does not answer yet")
    else:
        # That it is built for other environments is told better by what is published.
        known = error.code == "environment_differs"
        waits.final[model] = None if known else NotWarm(str(error), code=error.code)


def _facts(choosing: Choosing, model: str) -> dict[str, str | None] | None:
    """Return the environment to build for, as far as it is known from what is published."""
    if choosing.wanted.facts:
        return None
    try:
        candidates, _ = candidates_for(model, choosing.published)
        return choosing.present(candidates[0]).to_dict()
    except PrewarmError:
        # Any, then: the model has not been built yet.
        return None


def _with_reason(miss: Miss, waits: Waits) -> Miss:
    reason = waits.final.get(miss.model) if miss.model is not None else None
    return miss if reason is None else Miss(miss.model, reason)

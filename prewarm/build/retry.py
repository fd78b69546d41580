"""When a failed build is tried again: growing pauses, and a last word. Pure.

- What only a change can mend is not tried again until there is one.
- A full or failing disk is no fault of the build: it is tried again soon, as often as it takes.
- Anything else may come right by itself, so it is tried with growing pauses, and given up after
  ``MOST_ATTEMPTS`` that ended in the same way.
- ``prewarm scan`` and ``prewarm retry`` are a person's word and wait for nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prewarm.build.job import Job
from prewarm.store.entries import Entry
from prewarm.store.timestamp import epoch_seconds, timestamp

FIRST_PAUSE_S = 60.0
GROWTH = 4
LONGEST_PAUSE_S = 6 * 3600.0
MOST_ATTEMPTS = 8

#: Pauses differ by up to this part, so that what failed together is not tried together.
JITTER = 0.1

#: Codes of what stays as it is until somebody changes something, and what that is.
NEEDS_CHANGE: Mapping[str, str] = MappingProxyType(
    {
        "bad_declaration": "the declaration is wrong",
        "not_yet": "the declaration asks for what this version does not build",
        "bad_checkpoint": "the checkpoint is not whole",
        "bad_weights": "the weights do not fit the module",
        "cannot_import": "the declared code cannot be imported",
        "bad_request": "torchside refuses what the declaration asks for",
        "missing_library": "a library has to be installed for the interpreter",
        "missing_torch": "torch has to be installed for the interpreter",
        "no_interpreter": "the interpreter is not there",
        "no_compiler": "a compiler has to be installed",
        "no_gpu": "the declaration asks for a device that is not there",
        "outputs_differ": "compiled and eager disagree, whoever tries",
    }
)

#: A disk that refuses is tried again after the first pause, without a last word.
WAITS_FOR_DISK = frozenset({"no_space", "not_writable"})


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """When it is tried again, if at all; ``last_word`` is for the reason where it is given up."""

    next_try_at: str | None
    last_word: str | None = None


def decide_retry(code: str, attempts: int, at: str, *, model: str = "MODEL") -> RetryDecision:
    """Decide after ``attempts`` that ended with ``code``, the last of them at ``at``."""
    if code in NEEDS_CHANGE:
        return RetryDecision(None)
    if code in WAITS_FOR_DISK:
        return RetryDecision(_after(at, FIRST_PAUSE_S))
    if attempts >= MOST_ATTEMPTS:
        return RetryDecision(None, f"gave up after {attempts} attempts; `prewarm retry {model}`")
    pause_s = min(FIRST_PAUSE_S * GROWTH ** max(0, attempts - 1), LONGEST_PAUSE_S)
    spread = random.Random(f"{model} {attempts}").uniform(1 - JITTER, 1 + JITTER)
    return RetryDecision(_after(at, pause_s * spread))


def is_due(entry: Entry, job: Job, at: str) -> bool:
    """Tell whether an entry that failed may be tried again now, without anybody's word.

    It has no attempts where it failed before its work could begin; what is surveyed again and comes
    this far is mended then.
    """
    if entry.attempts == 0 or inputs_changed(entry, job):
        return True
    return entry.next_try_at is not None and entry.next_try_at <= at


def inputs_changed(entry: Entry, job: Job) -> bool:
    """Tell whether the job is another one than that which failed."""
    if (entry.checkpoint_digest, entry.architecture) != (job.digest, job.architecture):
        return True
    return entry.build_key not in (job.key(own_graph=False), job.key(own_graph=True))


def _after(at: str, pause_s: float) -> str:
    return timestamp(epoch_seconds(at) + pause_s)

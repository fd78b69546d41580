"""What a deployment asks of the hook, and what came of it: values that travel between its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from prewarm.deploy.address import Address
from prewarm.deploy.private import Prepared
from prewarm.deploy.published import Published
from prewarm.deploy.reports_to import ReportsTo
from prewarm.errors import PrewarmError

OnMiss = Literal["cold", "eager", "fail"]

#: Is told how far a hook is, again and again; shown on a terminal only.
Tell: TypeAlias = Callable[[str], None]

#: Below the 90 s after which systemd ends a unit that does not start.
TIMEOUT_S = 60.0

#: What an eager start sets. torch.compile looks at this variable and leaves the function as it is
#: (torch/_dynamo/eval_frame.py).
EAGER_VARIABLES = {"TORCHDYNAMO_DISABLE": "1"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a deployment asks for; with a registry its declarations are looked at too.

    ``facts`` stand for the environment where the server's machine cannot be seen (``--for``);
    ``trust`` holds public keys, or files that do. The hook ends after ``timeout_s``, and what it
    waits for the builder (``wait_s``) is not counted. Its starts are told to ``reports``.
    """

    models: tuple[str, ...]
    into: Path
    manifest: Address
    interpreter: tuple[str, ...]
    on_miss: OnMiss
    registry: Path | None = None
    trust: tuple[str, ...] = ()
    token_file: Path | None = None
    facts: tuple[tuple[str, str], ...] = ()
    wait_s: float = 0.0
    timeout_s: float = TIMEOUT_S
    reports: ReportsTo | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """One model that has a bundle here; ``caveat`` says why it is less than proven warm."""

    model: str
    published: Published
    caveat: PrewarmError | None


@dataclass(frozen=True, slots=True)
class Miss:
    """One model, or everything (``model`` None), that does not start warm, and why."""

    model: str | None
    error: PrewarmError


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the hook did: the variables to start with, and what was missed.

    ``published`` is what it chose from.
    """

    variables: dict[str, str]
    started: tuple[Started, ...]
    misses: tuple[Miss, ...]
    prepared: Prepared | None
    warnings: tuple[str, ...]
    published: tuple[Published, ...] = ()


def missed(error: Exception, on_miss: OnMiss) -> Outcome:
    """Return the outcome of a hook that could not run at all: a start without a bundle."""
    if not isinstance(error, PrewarmError):
        text = f"internal error: {type(error).__name__}: {error}"
        error = PrewarmError(f"{text}; please report it", code="internal")
    variables = dict(EAGER_VARIABLES) if on_miss == "eager" else {}
    return Outcome(variables, (), (Miss(None, error),), None, ())

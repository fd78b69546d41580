"""What the HTTP side knows of its builder, and the limits that it holds to."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prewarm.errors import ConfigError
from prewarm.serve.metrics import Metrics
from prewarm.serve.rate import Rate

#: A shorter one can be guessed.
SHORTEST_TOKEN = 16


#: A peer is a user or an address, so these hold for all of a machine's deployments together.
READS = Rate(per_s=2_000, burst=4_000)
WRITES = Rate(per_s=50, burst=400)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of everything one builder takes."""

    request_bytes: int = 64 << 10
    report_bytes: int = 256 << 10
    body_s: float = 10.0
    wait_s: float = 600.0
    waiters: int = 200
    reads: Rate = READS
    writes: Rate = WRITES


@dataclass(frozen=True, slots=True)
class House:
    """The builder whose house this is.

    ``uid`` is the reader whose trust in local files counts. ``wake`` is called when a deployment
    waits for a model, ``ready`` tells whether the builder is at work; both from another thread than
    the builder's, and neither may wait. ``tell`` gets a line for the log.
    """

    cache_dir: Path
    database: Path
    uid: int
    token: str | None
    wake: Callable[[], None]
    ready: Callable[[], bool]
    metrics: Metrics
    tell: Callable[[str], None]
    limits: Limits = field(default_factory=Limits)
    now_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise ConfigError(
                f"the token has {len(self.token)} characters and can be guessed; "
                f"use {SHORTEST_TOKEN} or more, such as from `openssl rand -hex 32`"
            )

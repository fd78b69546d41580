"""How often a peer may ask: a bucket of tokens for each, which fills again with time. Pure.

Owns the bound on how many peers are remembered. The caller tells the time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

#: Whoever has more addresses than these is forgotten one by one, and begins again with a full one.
MOST_PEERS = 1_024


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second, and so many at once after a pause."""

    per_s: float
    burst: int


class Buckets:
    """The buckets of all peers for one rate."""

    def __init__(self, rate: Rate) -> None:
        self._rate = rate
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, peer: str, *, now_s: float) -> float:
        """Take a token: return 0, or the seconds until there is one."""
        tokens, since_s = self._held.pop(peer, (float(self._rate.burst), now_s))
        passed_s = max(0.0, now_s - since_s)
        tokens = min(float(self._rate.burst), tokens + passed_s * self._rate.per_s)
        wait_s = 0.0 if tokens >= 1 else (1 - tokens) / self._rate.per_s
        self._held[peer] = (tokens if wait_s else tokens - 1, now_s)
        if len(self._held) > MOST_PEERS:
            self._held.popitem(last=False)
        return wait_s

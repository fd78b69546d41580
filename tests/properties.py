"""Settings of the property tests: the same examples in each run, so many as CI has time for.

No deadline, since a loaded machine is no fault. ``mutated`` spoils bytes as damage or malice does.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

bounded = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
#: For what starts a process or writes many files.
few = settings(bounded, max_examples=15)


@st.composite
def mutated(draw: st.DrawFn, good: bytes) -> bytes:
    """Bytes with some replaced, cut out, put in, repeated or moved."""
    raw = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(raw)))
        stop = min(len(raw), start + draw(st.integers(0, 40)))
        how = draw(st.sampled_from(("flip", "cut", "put", "repeat", "end")))
        if how == "flip" and start < len(raw):
            raw[start] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del raw[start:stop]
        elif how == "put":
            raw[start:start] = draw(st.binary(max_size=8))
        elif how == "repeat":
            raw[start:start] = raw[start:stop]
        elif how == "end":
            del raw[start:]
    return bytes(raw)

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.errors import ConfigError

from .served import Served


def test_it_answers_from_start_to_stop_and_leaves_nothing(serve: Callable[..., Served]) -> None:
    house = serve()
    assert house.server.alive
    assert house.get("/healthz").status == 200
    house.server.stop(5)
    assert not house.server.alive
    assert not house.unix_path.exists()
    assert "prewarm-http" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(OSError):
        house.get("/healthz")


def test_stopping_cuts_what_does_not_end_in_time(
    serve: Callable[..., Served], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    house = serve()
    sha256 = house.add_bundle(bytes(20_000_000))
    asking = house.connect()
    asking.request("GET", f"/v1/bundles/{sha256}")  # and does not read
    wait_until(lambda: house.connections == 1)
    started_s = time.monotonic()
    house.server.stop(0)
    assert not house.server.alive
    assert time.monotonic() - started_s < 30
    asking.close()


def test_it_takes_no_signal_from_the_daemon(serve: Callable[..., Served]) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    serve()
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_server_that_was_never_started_stops(open_root: Path) -> None:
    house = Served(open_root / "never")
    house.start()
    house.server.stop(1)
    house.server.stop(1)  # nor does a second time matter


def test_a_token_that_can_be_guessed_is_refused(open_root: Path) -> None:
    with pytest.raises(ConfigError, match="can be guessed"):
        Served(open_root / "guessed", token="short")

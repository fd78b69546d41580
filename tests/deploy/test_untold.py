"""A hook tells the builder of earlier starts that told nobody."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from prewarm.deploy.untold import TOLD, tell_untold

NOW_S = 1_000_000.0


@pytest.fixture
def told(tmp_path: Path) -> Iterator[list[dict[str, Any]]]:
    """What a builder at ``builder.sock`` was told."""
    bodies: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(201)
            self.end_headers()
            self.wfile.write(b'{"id": 1, "model": "m"}')

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingUnixStreamServer(str(tmp_path / "builder.sock"), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield bodies
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def into(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    entry = {"model": "m", "environment": "e", "bundle": {"sha256": "0" * 64}, "compile": {}}
    found = {
        "format": 1, "caches": {}, "variables": {}, "entries": [entry],
        "environments": {"e": {"device": "cpu"}},
        "reports": {"to": f"unix:{tmp_path / 'builder.sock'}"},
    }  # fmt: skip
    (directory / "env.json").write_text(json.dumps(found))
    return directory


def start(into: Path, name: str, *, silent_s: float) -> Path:
    directory = into / "reports" / name
    directory.mkdir(parents=True)
    (directory / "1.jsonl").write_text('{"event": "start", "pid": 1, "at_s": 1}\n')
    os.utime(directory / "1.jsonl", (NOW_S - silent_s, NOW_S - silent_s))
    return directory


def test_a_start_that_told_nobody_is_told_once(into: Path, told: list[dict[str, Any]]) -> None:
    start(into, "17-1", silent_s=1000)
    assert tell_untold(into, now_s=NOW_S) is None
    assert tell_untold(into, now_s=NOW_S) is None
    (body,) = told
    assert (body["model"], body["bundle"]) == ("m", "0" * 64)


def test_one_that_ended_while_it_told_is_told(into: Path, told: list[dict[str, Any]]) -> None:
    (start(into, "17-1", silent_s=1000) / TOLD).touch()
    assert tell_untold(into, now_s=NOW_S) is None
    assert len(told) == 1
    assert json.loads((into / "reports" / "17-1" / TOLD).read_text())["at_s"] == NOW_S


def test_one_that_may_still_tell_itself_or_has_is_left(
    into: Path, told: list[dict[str, Any]]
) -> None:
    start(into, "17-1", silent_s=10)
    (start(into, "18-1", silent_s=1000) / TOLD).write_text("{}")
    (into / "reports" / "19-1").mkdir()
    assert tell_untold(into, now_s=NOW_S) is None
    assert told == []


def test_a_builder_that_is_away_is_named_and_asked_again(into: Path) -> None:
    start(into, "17-1", silent_s=1000)
    for _ in range(2):
        why = tell_untold(into, now_s=NOW_S)
        assert why is not None and "1 earlier start(s) are not told to unix:" in why


def test_without_a_directory_or_a_builder_nothing_is_said(tmp_path: Path, into: Path) -> None:
    assert tell_untold(tmp_path / "none", now_s=NOW_S) is None
    start(into, "17-1", silent_s=1000)
    found = json.loads((into / "env.json").read_text()) | {"reports": None}
    (into / "env.json").write_text(json.dumps(found))
    assert tell_untold(into, now_s=NOW_S) is None


def test_the_mark_is_the_one_of_the_shim() -> None:
    from prewarm.torchside import telling

    assert telling.TOLD == TOLD

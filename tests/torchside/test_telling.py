"""A start is told to its builder once, when its declared calls have passed, never in the way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from typing import Any

import pytest

from prewarm.torchside.deployment import Deployment
from prewarm.torchside.events import EventLog
from prewarm.torchside.telling import TOLD, Telling

Until = Callable[[Callable[[], bool]], None]


class Builder:
    """What a builder answers with, and what it was told."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.status = 201
        self.bodies: list[dict[str, Any]] = []
        self.tokens: list[str | None] = []

    def handler(self) -> type[BaseHTTPRequestHandler]:
        builder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the library's name
                length = int(self.headers["content-length"])
                builder.tokens.append(self.headers.get("authorization"))
                builder.bodies.append(json.loads(self.rfile.read(length)) | {"path": self.path})
                self.send_response(builder.status)
                self.end_headers()
                answer: dict[str, Any] = {"error": {"code": "no", "message": "not known"}}
                if builder.status == 201:
                    answer = {"id": len(builder.bodies), "model": "m"}
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "local"

        return Handler


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    """A builder on a Unix socket."""
    found = Builder(f"unix:{tmp_path / 'b.sock'}")
    server = ThreadingUnixStreamServer(str(tmp_path / "b.sock"), found.handler())
    yield from served(server, found)


@pytest.fixture
def tcp_builder() -> Iterator[Builder]:
    found = Builder("")
    server = ThreadingHTTPServer(("127.0.0.1", 0), found.handler())
    found.address = f"http://127.0.0.1:{server.server_address[1]}/below/"
    yield from served(server, found)


def served(server: Any, builder: Builder) -> Iterator[Builder]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield builder
    server.shutdown()
    server.server_close()
    thread.join()


def telling(directory: Path, to: str, *, graphs: int = 1, **given: Any) -> tuple[Telling, EventLog]:
    found = Deployment(
        {}, None, graphs=graphs, environments={"e": {"device": "cpu"}},
        entries=[{"model": "m", "environment": "e", "bundle": "0" * 64}],
        reports={"to": to, **given},
    )  # fmt: skip
    log = EventLog(str(directory))
    made = Telling(found, log, lambda: log.write("files", changed=[], count=0), quiet_s=0.05)
    log.listener = made._heard
    log.write("start")
    return made, log


def noted(directory: Path) -> bool:
    told = directory / TOLD
    return told.exists() and told.stat().st_size > 0


def run(log: EventLog, number: int) -> None:
    log.write("graph", graph=number, frame=None, inputs=[])
    log.write("fx_lookup", graph=number, state="hit")
    log.write("graph_done", graph=number)
    log.write("ran", device_index=None)


def test_a_start_is_told_once_its_declared_calls_have_passed(
    tmp_path: Path, builder: Builder, wait_until: Until
) -> None:
    made, log = telling(tmp_path / "17-1", builder.address, graphs=2)
    run(log, 1)
    assert not made._is_over(0, 2), "one of two declared graphs"
    run(log, 2)
    wait_until(lambda: noted(tmp_path / "17-1"))
    (body,) = builder.bodies
    assert body["path"] == "/v1/reports"
    assert (body["model"], body["environment"], body["bundle"]) == ("m", "e", "0" * 64)
    assert body["report"]["fx_misses"] == 0
    assert [graph["outcome"] for graph in body["report"]["graphs"]] == ["hit", "hit"]
    told = json.loads((tmp_path / "17-1" / TOLD).read_text())
    assert (told["to"], told["ids"]) == (builder.address, [1])


def test_what_is_being_compiled_is_waited_for(tmp_path: Path, builder: Builder) -> None:
    made, log = telling(tmp_path / "17-1", builder.address)
    made._thread = threading.current_thread()  # no waiting here
    run(log, 1)
    log.write("graph", graph=2)
    assert not made._is_over(0, 1)
    log.write("graph_done", graph=2)
    assert made._is_over(0, 1)
    log.hint("frame_begins")
    assert not made._is_over(0, 1), "a frame is traced for seconds before its graph comes"
    log.write("frame", id="0/1")
    assert made._is_over(0, 1)


def test_a_start_without_all_calls_is_told_when_its_time_is_over(
    tmp_path: Path, builder: Builder, wait_until: Until
) -> None:
    made, log = telling(tmp_path / "17-1", builder.address, graphs=9)
    made._latest_s = 0.1
    run(log, 1)
    wait_until(lambda: bool(builder.bodies))


def test_what_is_compiled_later_is_told_in_place_of_the_first_report(
    tmp_path: Path, builder: Builder, wait_until: Until
) -> None:
    made, log = telling(tmp_path / "17-1", builder.address)
    made._late_quiet_s = 0.05
    run(log, 1)
    wait_until(lambda: made._ids == [1])
    log.write("graph", graph=2, frame=None, inputs=[])
    log.write("graph_compiled", graph=2)
    log.write("graph_done", graph=2)
    wait_until(lambda: made._ids == [2])
    first, second = builder.bodies
    assert (first.get("instead_of"), second["instead_of"]) == (None, 1)
    assert (first["report"]["graphs_compiled"], second["report"]["graphs_compiled"]) == (0, 1)
    made._at_exit()
    assert len(builder.bodies) == 2, "nothing new since"


def test_a_late_compile_is_told_at_the_end_at_the_latest(
    tmp_path: Path, builder: Builder, wait_until: Until
) -> None:
    made, log = telling(tmp_path / "17-1", builder.address)
    made._late_quiet_s = 3600
    run(log, 1)
    wait_until(lambda: made._ids == [1])
    log.write("graph_compiled", graph=2)
    made._at_exit()
    wait_until(lambda: made._ids == [2])
    assert [body.get("instead_of") for body in builder.bodies] == [None, 1]


def test_a_process_that_ends_before_tells_at_its_end(
    tmp_path: Path, builder: Builder, wait_until: Until
) -> None:
    made, log = telling(tmp_path / "17-1", builder.address, graphs=9)
    run(log, 1)
    made._at_exit()
    wait_until(lambda: made._ids == [1])  # on a busy machine the end is earlier
    made._at_exit()
    assert made._thread is not None and len(builder.bodies) == 1
    made._thread.join(10)
    assert not made._thread.is_alive()


def test_a_process_that_ran_nothing_tells_nothing(tmp_path: Path, builder: Builder) -> None:
    made, _ = telling(tmp_path / "17-1", builder.address)
    made._at_exit()
    assert builder.bodies == []


def test_of_several_processes_one_tells(tmp_path: Path, builder: Builder) -> None:
    for _ in range(2):
        made, log = telling(tmp_path / "17-1", builder.address, graphs=9)
        run(log, 1)
        made._at_exit()
        assert made._thread is not None
        made._thread.join(30)
    assert len(builder.bodies) == 1


def test_the_token_goes_along_over_tcp(
    tmp_path: Path, tcp_builder: Builder, wait_until: Until
) -> None:
    (tmp_path / "token").write_text("secret\n")
    made, log = telling(tmp_path / "1-1", tcp_builder.address, token_file=str(tmp_path / "token"))
    run(log, 1)
    wait_until(lambda: bool(tcp_builder.bodies))
    assert tcp_builder.tokens == ["Bearer secret"]
    assert tcp_builder.bodies[0]["path"] == "/below/v1/reports"
    wait_until(lambda: noted(tmp_path / "1-1"))
    assert made._ids == [1]


@pytest.mark.parametrize("to", ["unix:/nowhere/b.sock", "ftp://host", "http://127.0.0.1:1"])
def test_a_builder_that_is_not_there_costs_one_line_and_leaves_the_start_untold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str
) -> None:
    made, _ = telling(tmp_path / "17-1", to)
    made._tell()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"prewarm: the start report was not sent to {to}: ")
    assert not (tmp_path / "17-1" / TOLD).exists()


def test_a_refusal_is_told_with_the_builders_words(
    tmp_path: Path, builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    builder.status = 404
    made, _ = telling(tmp_path / "17-1", builder.address)
    made._tell()
    assert "it answers 404: " in (line := capsys.readouterr().err) and "not known" in line


def test_a_silent_builder_is_not_waited_for_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "silent.sock"))
    listener.listen()
    made, log = telling(tmp_path / "17-1", f"unix:{tmp_path / 'silent.sock'}", graphs=9)
    run(log, 1)
    made._at_exit()
    assert made._thread is not None
    made._thread.join(10)
    assert not made._thread.is_alive()
    listener.close()
    assert "timed out" in capsys.readouterr().err


def test_a_report_of_many_graphs_is_made_to_fit(tmp_path: Path, builder: Builder) -> None:
    made, log = telling(tmp_path / "17-1", builder.address)
    inputs = [{"name": "x" * 200, "dtype": "float32", "shape": [1] * 100}] * 16
    for number in range(60):
        state = "miss" if number == 59 else "hit"
        log.write("graph", graph=number, frame=None, inputs=inputs)
        log.write("fx_lookup", graph=number, state=state)
        log.write("graph_done", graph=number)
    made._tell()
    (body,) = builder.bodies
    assert len(json.dumps(body)) < 256 << 10
    assert body["report"]["graphs"][0]["outcome"] == "miss"


def test_without_a_builder_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made, _ = telling(tmp_path / "17-1", "")
    made._deployment.reports = {}
    made._tell()
    assert capsys.readouterr().err == ""

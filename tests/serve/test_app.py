from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.routing import Route

from prewarm.serve import connection
from prewarm.serve.app import make_app
from prewarm.serve.house import Limits
from prewarm.serve.rate import Rate
from prewarm.store.status import Status

from .served import TOKEN, Served

Wait = Callable[[Callable[[], bool]], None]


def _raw(house: Served, data: bytes, *, tcp: bool = False) -> bytes:
    """Send these bytes and read until the other end closes."""
    with socket.socket(socket.AF_INET if tcp else socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(("127.0.0.1", house.port) if tcp else str(house.unix_path))
        asking.sendall(data)
        answer = b""
        while part := asking.recv(65536):
            answer += part
        return answer


# -- what each path is for


@pytest.mark.parametrize("tcp", [False, True])
def test_health_is_told(served: Served, tcp: bool) -> None:
    assert served.get("/healthz", tcp=tcp).json == {"status": "ok"}


def test_ready_is_what_the_builder_says(served: Served) -> None:
    assert (served.get("/readyz").status, served.get("/readyz").json) == (200, {"status": "ready"})
    served.is_ready = False
    try:
        assert served.get("/readyz").status == 503
        assert served.get("/healthz").status == 200
    finally:
        served.is_ready = True


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/manifest/", "/v2/manifest", "/healthz/x", "/v1/bundles", "//", "/%00"]
)
def test_an_unknown_path_is_told(served: Served, path: str) -> None:
    answer = served.get(path)
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/v1/manifest", {"GET", "HEAD"}), ("DELETE", "/v1/bundles/a", {"GET", "HEAD"}),
        ("GET", "/v1/requests", {"POST"}), ("PUT", "/v1/reports", {"POST"}),
    ],
)  # fmt: skip
def test_another_method_is_told(served: Served, method: str, path: str, allowed: set[str]) -> None:
    answer = served.ask(method, path)
    assert (answer.status, answer.code) == (405, "bad_method")
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a_fault_tells_the_reader_nothing_and_the_builder_all(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = serve()

    def broken(*_: object) -> bytes:
        raise ValueError("a secret of the house")

    monkeypatch.setattr("prewarm.serve.metrics.generate_latest", broken)
    answer = house.get("/metrics")
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body
    assert "ValueError: a secret of the house" in house.told[0]


def test_figures_count_what_there_is(serve: Callable[..., Served]) -> None:
    house = serve()
    house.add_entry("a", Status.QUEUED)
    house.add_entry("b", Status.FAILED, reason="why")
    house.post("/v1/requests", {"model": "a"})
    house.get("/no-such-path-as-this")
    assert "last_scan_age" not in house.get("/metrics").body.decode()
    house.metrics.scan_ended()
    text = house.get("/metrics").body.decode()
    for line in (
        'prewarm_entries{status="queued"} 1.0', 'prewarm_entries{status="warm"} 0.0',
        "prewarm_queue_length 1.0", "prewarm_requests 1.0", "prewarm_quarantined_bundles 0.0",
        "prewarm_bundle_bytes 0.0", "prewarm_last_scan_age_seconds 0.0",
        'prewarm_http_requests_total{route="/v1/requests",status="200"} 1.0',
        'prewarm_http_requests_total{route="other",status="404"} 1.0',
    ):  # fmt: skip
        assert line in text.splitlines()
    assert "no-such-path" not in text


def test_figures_of_a_database_that_is_gone_are_an_error(serve: Callable[..., Served]) -> None:
    house = serve()
    house.database_path.write_bytes(b"no database at all, and long enough to be looked at" * 40)
    answer = house.get("/metrics")
    assert (answer.status, answer.code) == (500, "corrupt")


# -- who may ask


def test_a_forwarded_request_is_not_from_here(served: Served) -> None:
    headers = {"X-Forwarded-For": "127.0.0.1"}
    assert served.get("/v1/manifest", tcp=True).status == 200
    assert served.get("/v1/manifest", tcp=True, headers=headers).status == 401
    headers["Authorization"] = f"Bearer {TOKEN}"
    assert served.get("/v1/manifest", tcp=True, headers=headers).status == 200


def test_health_is_told_to_everybody(served: Served) -> None:
    headers = {"X-Forwarded-For": "192.0.2.1"}
    for path in ("/healthz", "/readyz"):
        assert served.get(path, tcp=True, headers=headers).status == 200
    assert served.get("/metrics", tcp=True, headers=headers).status == 401


# -- how often, how much, how slow


def test_who_asks_too_often_is_told_when_to_come_again(serve: Callable[..., Served]) -> None:
    clock = [0.0]
    rate = Rate(per_s=0.5, burst=2)
    house = serve(limits=Limits(reads=rate), monotonic_s=lambda: clock[0])
    assert [house.get("/healthz").status for _ in range(3)] == [200, 200, 429]
    answer = house.get("/v1/manifest")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too_many", "2")
    assert house.get("/healthz", tcp=True).status == 200  # another peer
    clock[0] = 2.0
    assert [house.get("/healthz").status for _ in range(2)] == [200, 429]


def test_writing_has_a_rate_of_its_own(serve: Callable[..., Served]) -> None:
    house = serve(limits=Limits(writes=Rate(per_s=1, burst=1)))
    house.add_entry("m", Status.QUEUED)
    statuses = [house.post("/v1/requests", {"model": "m"}).status for _ in range(2)]
    assert statuses == [200, 429]
    assert house.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("path", "limit"), [("/v1/requests", 64 << 10), ("/v1/reports", 256 << 10)]
)
def test_a_body_over_the_limit_is_refused_before_it_is_read(
    served: Served, path: str, limit: int
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: "
    answer = _raw(served, f"{head}{limit + 1}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 413")
    answer = _raw(served, f"{head}{10**30}\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 4")
    at_the_limit = b" " * (limit - 2) + b"{}"
    assert served.post(path, at_the_limit).status == 400


def test_a_body_that_does_not_tell_its_length_is_limited_too(served: Served) -> None:
    head = b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    assert _raw(served, head + chunk + b"1\r\n \r\n").startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for(serve: Callable[..., Served]) -> None:
    house = serve(limits=Limits(body_s=0.05))
    head = b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"
    answer = _raw(house, head)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"too_slow" in answer


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost:"])
def test_half_a_request_is_cut_off(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, wait_until: Wait, sent: bytes
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)
    house = serve()
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(str(house.unix_path))
        asking.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            assert asking.recv(100) == b""
    wait_until(lambda: house.connections == 0)


def test_half_a_second_request_is_cut_off(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, wait_until: Wait
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)
    house = serve()
    whole = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(30)
        asking.connect(str(house.unix_path))
        asking.sendall(whole)
        assert asking.recv(1000).startswith(b"HTTP/1.1 200")
        asking.sendall(whole[:-4])
        wait_until(lambda: house.connections == 0)


def test_a_request_that_takes_long_to_answer_is_not_cut_off(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "REQUEST_S", 0.05)
    house = serve()
    house.add_entry("m", Status.QUEUED)
    assert house.post("/v1/requests", {"model": "m", "wait_s": 0.2}).status == 200


def test_more_connections_than_can_be_served_are_turned_away(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prewarm.serve.server.CONNECTIONS", 2)
    house = serve()
    first = house.connect()
    first.request("GET", "/healthz")
    assert first.getresponse().read()
    assert house.get("/healthz").status == 503
    monkeypatch.setattr(connection, "MOST_CONNECTIONS", 1)
    with pytest.raises(OSError):
        house.get("/healthz")
    first.close()


@pytest.mark.parametrize(
    "data",
    [
        b"rubbish\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\x00 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/requests HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)  # fmt: skip
def test_what_is_no_http_ends_the_connection(served: Served, data: bytes) -> None:
    try:
        answer = _raw(served, data + b"\r\n\r\n")
    except ConnectionError:
        return  # cut while it was still sending
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert served.told == []


def test_several_requests_go_over_one_connection(served: Served) -> None:
    asking = served.connect()
    for path in ("/healthz", "/v1/manifest", "/readyz"):
        asking.request("GET", path)
        found = asking.getresponse()
        assert (found.status, bool(found.read())) == (200, True)
    asking.close()


# -- what the README says of it

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_every_route_is_documented_and_every_documented_one_exists(served: Served) -> None:
    routes = {
        f"{'POST' if 'POST' in route.methods else 'GET'} {route.path}"
        for route in make_app(served.house).routes
        if isinstance(route, Route) and route.methods
    }
    documented = re.findall(r"^\| `((?:GET|POST) /[^`]*)` \|", README, re.MULTILINE)
    assert sorted(documented) == sorted(routes)


def test_every_figure_is_documented_and_every_documented_one_exists(served: Served) -> None:
    served.get("/healthz")
    served.metrics.scan_ended()
    [row] = re.findall(r"^\| `GET /metrics` \|.*$", README, re.MULTILINE)
    text = served.get("/metrics").body.decode()
    told = {one for one in re.findall(r"^# TYPE (\w+)", text, re.M) if not one.endswith("_created")}
    assert set(re.findall(r"prewarm_\w+", row)) == told


def test_the_limits_are_documented() -> None:
    limits, [line] = Limits(), re.findall(r"^- Limits: (.*?)^\s+A request", README, re.M | re.S)
    numbers = [int(one.replace(",", "")) for one in re.findall(r"\d[\d,]*", line)]
    assert numbers == [
        limits.request_bytes >> 10, limits.report_bytes >> 10, int(limits.body_s),
        int(connection.REQUEST_S), connection.CONNECTIONS, limits.waiters,
        int(limits.reads.per_s), int(limits.writes.per_s),
    ]  # fmt: skip

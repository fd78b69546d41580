from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from prewarm.store.database import Database
from prewarm.store.requests import RequestRow
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

from .served import FACTS, HERE, NOW_S, TOKEN, Answer, Served, record

Wait = Callable[[Callable[[], bool]], None]
ELSEWHERE = "0" * 16


def _wishes(house: Served) -> tuple[RequestRow, ...]:
    with Database(house.database_path) as database:
        return database.live_requests(timestamp(NOW_S))


def _move(house: Served, to: Status, **fields: Any) -> None:
    with Database(house.database_path) as database:
        [entry] = database.entries()
        database.move(entry.id, to, at=timestamp(NOW_S), **fields)


def _in_background(house: Served, body: dict[str, Any]) -> Callable[[], Answer]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(house.post("/v1/requests", body)))
    thread.start()

    def joined() -> Answer:
        thread.join(30)
        return answers[0]

    return joined


@pytest.fixture(scope="module")
def shared(served: Served) -> Served:
    """A house for what changes nothing."""
    served.add_entry("m/1", Status.QUEUED, aliases=["m/latest"])
    return served


@pytest.fixture
def house(serve: Callable[..., Served]) -> Served:
    house = serve()
    house.add_entry("m/1", Status.QUEUED, aliases=["m/latest"])
    return house


@pytest.mark.parametrize("name", ["m/1", "m/latest", "/m/1/"])
@pytest.mark.parametrize("environment", [None, HERE, FACTS])
def test_a_wish_is_recorded_and_the_builder_woken(
    house: Served, name: str, environment: object
) -> None:
    answer = house.post("/v1/requests", {"model": name, "environment": environment})
    assert answer.status == 200
    assert answer.json == {
        "model": "m/1", "status": "queued", "reason": None, "code": None, "entry": None,
    }  # fmt: skip
    assert house.woken == 1
    [wish] = _wishes(house)
    assert (wish.model, wish.environment_id) == ("m/1", environment and HERE)
    assert (wish.asked_at, wish.until) == (timestamp(NOW_S), timestamp(NOW_S + 60))


def test_a_model_that_is_warm_is_answered_at_once_and_nobody_woken(house: Served) -> None:
    house.add_entry("w", Status.WARM, record=record(), aliases=["w/latest"])
    house.publish()
    answer = house.post("/v1/requests", {"model": "w/latest", "wait_s": 600})
    assert (answer.json["status"], answer.json["entry"]["bundle"]["sha256"]) == ("warm", "a" * 64)
    assert (house.woken, _wishes(house)) == (0, ())


def test_a_model_that_failed_is_answered_at_once_with_its_reason(house: Served) -> None:
    house.add_entry("f", Status.FAILED, reason="no compiler", code="no_compiler")
    answer = house.post("/v1/requests", {"model": "f", "wait_s": 600})
    assert answer.json == {
        "model": "f", "status": "failed", "reason": "no compiler", "code": "no_compiler",
        "entry": None,
    }  # fmt: skip


def test_who_waits_is_answered_when_the_manifest_names_it(house: Served, wait_until: Wait) -> None:
    answered = _in_background(house, {"model": "m/1", "wait_s": 600})
    wait_until(lambda: house.woken == 1)
    assert [wish.until for wish in _wishes(house)] == [timestamp(NOW_S + 600)]
    _move(house, Status.PROVING)
    _move(house, Status.WARM, record=record())
    house.server.changed()
    house.publish()
    house.server.changed()
    answer = answered()
    assert (answer.json["status"], answer.json["entry"]["model"]) == ("warm", "m/1")


def test_who_waits_is_answered_when_the_build_fails(house: Served, wait_until: Wait) -> None:
    answered = _in_background(house, {"model": "m/1", "wait_s": 600})
    wait_until(lambda: house.woken == 1)
    _move(house, Status.FAILED, reason="it failed", code="raised")
    answer = answered()
    assert (answer.json["status"], answer.json["reason"]) == ("failed", "it failed")


def test_who_waited_long_enough_is_told_where_it_stands(house: Served) -> None:
    answer = house.post("/v1/requests", {"model": "m/1", "wait_s": 0.05})
    assert (answer.status, answer.json["status"]) == (200, "queued")


def test_a_builder_that_published_nothing_takes_wishes(serve: Callable[..., Served]) -> None:
    house = serve()
    with Database(house.database_path) as database:
        database.see_checkpoint("new", "/r", digest=None, architecture=None, at=timestamp(NOW_S))
    answer = house.post("/v1/requests", {"model": "new"})
    assert (answer.status, answer.json["status"], len(_wishes(house))) == (200, None, 1)


def test_two_hundred_wait_at_once_and_no_more(house: Served, wait_until: Wait) -> None:
    body = b'{"model": "m/1", "wait_s": 600}'
    waiting = [house.connect() for _ in range(house.limits.waiters)]
    for asking in waiting:
        asking.request("POST", "/v1/requests", body=body)
    wait_until(lambda: b"prewarm_waiting 200.0" in house.get("/metrics").body)
    answer = house.post("/v1/requests", body)
    assert (answer.status, answer.code) == (503, "busy")
    assert int(answer.headers["retry-after"]) > 0
    assert house.post("/v1/requests", {"model": "m/1"}).status == 200  # without waiting
    assert len(_wishes(house)) == 1
    _move(house, Status.FAILED, reason="it failed")
    for asking in waiting:
        assert json.loads(asking.getresponse().read())["status"] == "failed"
        asking.close()


def test_who_goes_away_waits_no_more(house: Served, wait_until: Wait) -> None:
    asking = house.connect()
    asking.request("POST", "/v1/requests", body=b'{"model": "m/1", "wait_s": 600}')
    wait_until(lambda: b"prewarm_waiting 1.0" in house.get("/metrics").body)
    asking.close()
    wait_until(lambda: b"prewarm_waiting 0.0" in house.get("/metrics").body)


def test_who_waits_is_sent_away_when_the_builder_stops(
    serve: Callable[..., Served], wait_until: Wait
) -> None:
    house = serve()
    house.add_entry("m", Status.QUEUED)
    answered = _in_background(house, {"model": "m", "wait_s": 600})
    wait_until(lambda: house.woken == 1)
    house.server.stop(10)
    assert (answered().status, answered().code) == (503, "busy")
    assert not house.server.alive


def test_a_look_that_fails_is_told_to_who_waits(house: Served, wait_until: Wait) -> None:
    answered = _in_background(house, {"model": "m/1", "wait_s": 600})
    wait_until(lambda: b"prewarm_waiting 1.0" in house.get("/metrics").body)
    house.publish()
    house.cache_dir.chmod(0o777)
    assert (answered().status, answered().code) == (503, "not_trusted")


@pytest.mark.parametrize(("name", "hint"), [("m/2", "did you mean m/1?"), ("zzzzzz", "it knows 2")])
def test_an_unknown_model_is_told_with_the_nearest_name(
    shared: Served, name: str, hint: str
) -> None:
    answer = shared.post("/v1/requests", {"model": name})
    assert (answer.status, answer.code) == (404, "unknown_model")
    assert hint in answer.json["error"]["message"]
    assert (_wishes(shared), shared.woken) == ((), 0)


def test_an_environment_that_is_not_built_for_is_told(shared: Served) -> None:
    answer = shared.post("/v1/requests", {"model": "m/1", "environment": ELSEWHERE})
    assert (answer.status, answer.code) == (409, "environment_differs")
    assert (_wishes(shared), shared.woken) == ((), 0)


@pytest.mark.parametrize("given", [None, "another-token-of-no-use"])
def test_over_tcp_a_wish_needs_the_token(house: Served, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": f"Bearer {given}"}
    answer = house.post("/v1/requests", {"model": "m/1"}, tcp=True, headers=headers)
    assert (answer.status, answer.code) == (401, "token_needed")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert _wishes(house) == ()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert house.post("/v1/requests", {"model": "m/1"}, tcp=True, headers=headers).status == 200


def test_over_tcp_nobody_writes_where_there_is_no_token(serve: Callable[..., Served]) -> None:
    house = serve(token=None)
    house.add_entry("m", Status.QUEUED)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = house.post("/v1/requests", {"model": "m"}, tcp=True, headers=headers)
    assert (answer.status, answer.code) == (403, "forbidden")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "no JSON"), (b"{", "no JSON"), (b"[]", "the body: "), (b"\xff", "no JSON"),
        (b'{"model": "m/1", "wait_s": NaN}', "no JSON"), (b'{"model": "\\ud800"}', "no JSON"),
        (b"[" * 10_000, "no JSON"), (b"{}", "model: "), (b'{"model": 1}', "model: "),
        (b'{"model": ""}', "model: "), (b'{"model": "a\\u0000"}', "model: "),
        (b'{"model": "m/1", "wait": 1}', "wait: "), (b'{"model": "m/1", "wait_s": -1}', "wait_s: "),
        (b'{"model": "m/1", "wait_s": 601}', "wait_s: found 601, expected 600 at most"),
        (b'{"model": "m/1", "wait_s": "1"}', "wait_s: "),
        (b'{"model": "m/1", "wait_s": 1e999}', "wait_s: "),
        (b'{"model": "m/1", "environment": "x"}', "environment"),
        (b'{"model": "m/1", "environment": {"torch": 2}}', "environment"),
        (b'{"model": "' + b"m" * 513 + b'"}', "model: "),
    ],
)  # fmt: skip
def test_a_body_that_says_something_else_is_told(shared: Served, body: bytes, told: str) -> None:
    answer = shared.post("/v1/requests", body)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert told in answer.json["error"]["message"]
    assert shared.told == []


def test_a_wish_as_a_path_is_a_name_and_no_file(shared: Served) -> None:
    answer = shared.post("/v1/requests", {"model": "../../../../etc/passwd"})
    assert (answer.status, answer.code) == (404, "unknown_model")
    assert os.path.exists("/etc/passwd")

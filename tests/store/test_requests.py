from __future__ import annotations

from collections.abc import Callable

from prewarm.store.database import Database

At = Callable[[float], str]


def _live(database: Database, at: str) -> list[tuple[str, str | None]]:
    return [(found.model, found.environment_id) for found in database.live_requests(at)]


def test_who_asked_first_goes_first(database: Database, at: At) -> None:
    database.put_request("b", None, at=at(0), until=at(60))
    database.put_request("a", "e", at=at(1), until=at(61))
    assert _live(database, at(2)) == [("b", None), ("a", "e")]


def test_a_request_counts_until_its_time_is_over(database: Database, at: At) -> None:
    database.put_request("m", None, at=at(0), until=at(10))
    assert _live(database, at(9.999)) == [("m", None)]
    assert _live(database, at(10)) == []


def test_asking_again_keeps_the_turn_and_the_later_end(database: Database, at: At) -> None:
    first = database.put_request("m", None, at=at(0), until=at(60))
    again = database.put_request("m", None, at=at(5), until=at(20))
    longer = database.put_request("m", None, at=at(6), until=at(90))
    assert first == again
    assert (longer.id, longer.asked_at, longer.until) == (first.id, at(0), at(90))


def test_no_environment_is_another_request_than_one(database: Database, at: At) -> None:
    database.put_request("m", None, at=at(0), until=at(60))
    database.put_request("m", "e", at=at(1), until=at(60))
    assert _live(database, at(2)) == [("m", None), ("m", "e")]


def test_what_is_over_loses_its_turn_and_leaves_the_table(database: Database, at: At) -> None:
    database.put_request("m", None, at=at(0), until=at(10))
    database.put_request("other", None, at=at(5), until=at(60))
    asked = database.put_request("m", None, at=at(10), until=at(60))
    assert asked.asked_at == at(10)
    assert database.query("SELECT count(*) AS n FROM requests") == [{"n": 2}]
    assert _live(database, at(11)) == [("other", None), ("m", None)]

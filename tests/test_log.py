"""The log: one line per event in two forms, no secrets, no injected lines, never an error."""

from __future__ import annotations

import io
import json
import threading
import time

import pytest

from prewarm.log import LONGEST_VALUE, Form, Log, choose_form

NOW_S = 1_800_000_000.25
CLOCK = time.strftime("%H:%M:%S", time.localtime(NOW_S))


def lines(form: Form, *secrets: str, **fields: object) -> list[str]:
    stream = io.StringIO()
    Log(stream, form=form, secrets=secrets, now_s=lambda: NOW_S).event("built", **fields)  # type: ignore[arg-type]
    assert stream.getvalue().endswith("\n")
    return stream.getvalue()[:-1].split("\n")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_for_people_has_the_time_the_model_and_what_happened() -> None:
    told = lines("human", model="minilm/v1", detail="warm", seconds=34.5, aliases=None, new=True)
    assert told == [f"{CLOCK} minilm/v1 built: warm seconds=34.5 new=yes"]
    assert lines("human", level="warning", reason="disk is full") == [
        f'{CLOCK} warning: built reason="disk is full"'
    ]


def test_a_line_of_json_has_stable_fields_in_order() -> None:
    (line,) = lines("json", model="minilm/v1", seconds=34.5, status="warm")
    assert list(json.loads(line).items()) == [
        ("at", "2027-01-15T08:00:00.250Z"), ("level", "info"), ("event", "built"),
        ("model", "minilm/v1"), ("seconds", 34.5), ("status", "warm"),
    ]  # fmt: skip
    (line,) = lines("json", at="never")
    assert json.loads(line)["at"] == "2027-01-15T08:00:00.250Z"


@pytest.mark.parametrize("form", ["human", "json"])
def test_no_name_begins_a_line_of_its_own_or_steers_a_terminal(form: Form) -> None:
    evil = "m\n12:00:00 forged\r\x1b[2J\x85\u2028\u202e\ud800"
    (line,) = lines(form, model=evil, detail=evil)
    assert line.isprintable()
    if form == "json":
        assert json.loads(line)["model"] == evil


@pytest.mark.parametrize("form", ["human", "json"])
@pytest.mark.parametrize(
    "fields",
    [
        {"token": "hunter2"},
        {"signing_key": "hunter2"},
        {"Authorization": "hunter2"},
        {"headers": {"x": 1, "db_password": "hunter2"}},
        {"detail": "GET http://me:hunter2@host/v1"},
        {"detail": "Authorization: Bearer hunter2"},
        {"detail": "?access_token=hunter2&x=1"},
        {"argv": ["serve", "HF_TOKEN=hunter2"]},
    ],
)
def test_what_is_called_like_a_secret_is_masked(form: Form, fields: dict[str, object]) -> None:
    (line,) = lines(form, **fields)
    assert "hunter2" not in line
    assert "***" in line


def test_the_configured_token_is_masked_wherever_it_stands() -> None:
    (line,) = lines("human", "abc", "abcdef", detail="refused abcdef at /x/abc", other=["abcdef"])
    assert "abc" not in line
    assert "def" not in line
    (line,) = lines("human", "", detail="as it is")
    assert line.endswith("as it is")


def test_a_build_key_is_no_secret() -> None:
    assert lines("human", build_key="0123") == [f"{CLOCK} built build_key=0123"]


def test_a_long_value_is_cut() -> None:
    (line,) = lines("json", detail="x" * 100_000)
    assert len(json.loads(line)["detail"]) == LONGEST_VALUE


class Broken(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError("gone")


class Unshowable:
    def __str__(self) -> str:
        raise ValueError("no text")


def test_nothing_is_raised_into_the_caller() -> None:
    Log(Broken()).event("built")
    closed = io.StringIO()
    closed.close()
    Log(closed).event("built")
    stream = io.StringIO()
    Log(stream).event("built", what=Unshowable())
    assert stream.getvalue() == ""


def test_a_stream_that_is_only_ascii_gets_escapes() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii") as stream:
        Log(stream).event("built", model="müller")
        assert b"m\\xfcller built" in raw.getvalue()


def test_threads_do_not_mix_their_lines() -> None:
    stream = io.StringIO()
    log = Log(stream, form="json")

    def write(number: int) -> None:
        for _ in range(50):
            log.event("built", model=f"m{number}", detail="x" * 200)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 200


def test_json_is_for_the_journal_and_whoever_asks() -> None:
    journal = {"JOURNAL_STREAM": "8:12345"}
    assert choose_form(journal, io.StringIO()) == "json"
    assert choose_form({}, io.StringIO()) == "human"
    assert choose_form(journal, Terminal()) == "human"
    assert choose_form(journal, io.StringIO(), "human") == "human"
    assert choose_form({}, Terminal(), "json") == "json"

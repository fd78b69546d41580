from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from prewarm.serve.start_report import StartReport
from prewarm.store.database import Database
from prewarm.store.reports import ReportRow
from prewarm.store.status import Status
from prewarm.torchside.report import fold

from .served import HERE, TOKEN, Served, record

ZEROS: dict[str, Any] = {**fold([], has_triton=True), **{
    name: 0 for name, count in fold([], has_triton=True).items() if count is None
}, "bypass_reasons": [], "graphs": []}  # fmt: skip

NOBODY = 65534


def _sent(**others: Any) -> dict[str, Any]:
    return {"model": "m/latest", "environment": HERE, "bundle": "a" * 64, "report": ZEROS, **others}


def _kept(house: Served) -> tuple[ReportRow, ...]:
    with Database(house.database_path) as database:
        return database.reports("m/1")


@pytest.fixture(scope="module")
def shared(served: Served) -> Served:
    """A house for what leaves no report."""
    served.add_entry("m/1", Status.QUEUED, aliases=["m/latest"])
    return served


@pytest.fixture
def house(serve: Callable[..., Served]) -> Served:
    house = serve()
    house.add_entry("m/1", Status.QUEUED, aliases=["m/latest"])
    return house


@pytest.mark.parametrize("has_triton", [False, True])
def test_every_report_as_it_is_folded_is_taken(has_triton: bool) -> None:
    folded = fold([], has_triton=has_triton)
    assert StartReport.model_validate(folded).model_dump() == folded
    assert StartReport.model_fields.keys() == folded.keys()


def test_a_report_is_kept_with_who_sent_it(house: Served) -> None:
    report = {**ZEROS, "processes": [{"pid": 1, "first_run_s": 2.5}, {"first_run_s": None}]}
    answer = house.post("/v1/reports", _sent(report=report))
    assert (answer.status, answer.json) == (201, {"id": 1, "model": "m/1"})
    [row] = _kept(house)
    assert (row.environment_id, row.bundle_sha256, row.uid) == (HERE, "a" * 64, os.geteuid())
    assert (row.first_answer_s, row.compiled) == (2.5, False)
    assert row.report == report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_is_known_by_the_kernels_word(house: Served) -> None:
    asking = house.connect()
    os.seteuid(NOBODY)
    try:
        asking.connect()
    finally:
        os.seteuid(0)
    asking.request("POST", "/v1/reports", body=json.dumps(_sent()))
    assert asking.getresponse().status == 201
    asking.close()
    assert [row.uid for row in _kept(house)] == [NOBODY]


def test_with_the_token_nobody_is_named(house: Served) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert house.post("/v1/reports", _sent(), tcp=True).status == 401
    assert house.post("/v1/reports", _sent(), tcp=True, headers=headers).status == 201
    assert [row.uid for row in _kept(house)] == [None]


@pytest.mark.parametrize(
    ("counts", "compiled"),
    [
        ({}, False), ({"triton_compiled": "n/a"}, False), ({"fx_misses": None}, None),
        ({"fx_misses": 1}, True), ({"fx_misses": None, "cpp_compiled": 2}, True),
    ],
)  # fmt: skip
def test_whether_anything_compiled_is_counted(
    house: Served, counts: dict[str, Any], compiled: bool | None
) -> None:
    assert house.post("/v1/reports", _sent(report={**ZEROS, **counts})).status == 201
    assert _kept(house)[0].compiled is compiled
    told = {True: "yes", False: "no", None: "unknown"}[compiled]
    assert (
        f'prewarm_start_reports_total{{compiled="{told}"}} 1.0'.encode()
        in house.get("/metrics").body
    )


def test_the_seconds_that_were_measured_count_before_those_of_the_report(house: Served) -> None:
    house.post("/v1/reports", _sent(first_answer_s=9.5))
    assert _kept(house)[0].first_answer_s == 9.5


@pytest.mark.parametrize(
    ("seconds", "kept"), [("1", None), (True, None), (-1, None), (10**400, None), (3, 3.0)]
)
def test_seconds_that_are_none_are_not_taken(seconds: Any, kept: Any) -> None:
    processes = [{"first_run_s": seconds}]
    assert StartReport.model_validate({"processes": processes}).first_answer_s == kept


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"model": "nobody's"}, "is no model"), ({"environment": None}, "environment"),
        ({"environment": "../.."}, "environment"), ({"bundle": "a"}, "bundle"),
        ({"report": []}, "report"), ({"report": {"fx_misses": -1}}, "report.fx_misses"),
        ({"report": {"fx_misses": True}}, "report.fx_misses"),
        ({"report": {"fx_misses": "none"}}, "report.fx_misses"),
        ({"report": {"fx_misses": 1 << 60}}, "report.fx_misses"),
        ({"report": {"unknown": 1}}, "report.unknown"),
        ({"report": {"calls": [1]}}, "report.calls"),
        ({"uid": 0}, "uid"), ({"first_answer_s": -1}, "first_answer_s"),
    ],
)  # fmt: skip
def test_a_report_that_says_something_else_is_told(
    shared: Served, others: dict[str, Any], told: str
) -> None:
    answer = shared.post("/v1/reports", _sent(**others))
    assert answer.status in (400, 404)
    assert told in answer.json["error"]["message"]
    assert (_kept(shared), shared.told) == ((), [])


def test_every_issue_is_told_up_to_a_few(shared: Served) -> None:
    report = {f"unknown_{number}": 1 for number in range(10)}
    message = shared.post("/v1/reports", _sent(report=report)).json["error"]["message"]
    assert "unknown_0" in message
    assert "and 4 more" in message


def test_the_bundle_s_builder_is_who_publishes_it(house: Served) -> None:
    house.add_entry("n/1", Status.WARM, record=record("b"), bundle_sha256="b" * 64)
    house.publish("gpu-1")
    for bundle in ("b" * 64, "c" * 64, None):
        assert house.post("/v1/reports", _sent(bundle=bundle)).status == 201
    assert [row.builder for row in _kept(house)] == [None, None, "gpu-1"]


def test_what_a_start_compiled_is_kept_in_short(house: Served) -> None:
    tensor = {"name": "x", "dtype": "float32", "shape": [3, 64]}
    graph = {"outcome": "miss", "frame": {"name": "forward"}, "inputs": [tensor]}
    report = {**ZEROS, "fx_misses": 1, "cpp_compiled": None, "graphs": [graph, graph]}
    assert house.post("/v1/reports", _sent(report=report)).status == 201
    [row] = _kept(house)
    assert row.summary.counts == {"fx_misses": 1}
    assert row.summary.cannot_tell == ("cpp_compiled",)
    assert row.summary.graphs == ((tensor,),)


EVIL = "\x1b]0;owned\x07\x1b[2J\n"


@pytest.mark.parametrize(
    "others",
    [
        {"calls": [{EVIL: EVIL, "shape_set": EVIL, "sizes": EVIL}]},
        {"graphs": [{"outcome": EVIL, "frame": {"name": EVIL}, "inputs": [{"name": EVIL}]}]},
        {"graphs": [{"outcome": "miss", "frame": {"name": "f"}, "inputs": [
            {"name": EVIL, "dtype": "float32", "shape": [1]}]}]},
        {"graphs": [{"outcome": "miss", "frame": {"name": "f"}, "inputs": "x" * 99_999}]},
        {"compilers": [EVIL], "files": [EVIL] * 1_000, "bypass_reasons": [EVIL]},
        {"not_watched": [EVIL], "processes": [{"first_run_s": EVIL, EVIL: 1}]},
        {"graphs": [{}] * 10_000}, {"calls": [{}] * 10_000},
        {"calls": [{"sizes": 10**4_000}]}, {"calls": [{"sizes": 1e308}]},
    ],
)  # fmt: skip
def test_a_hostile_report_is_kept_without_harm(house: Served, others: dict[str, Any]) -> None:
    assert (
        house.post("/v1/reports", _sent(report={**ZEROS, "fx_misses": 1, **others})).status == 201
    )
    [row] = _kept(house)
    text = row.summary.to_json()
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 4_096
    assert house.told == []
    # And it is shown by a command that a person runs in a terminal.
    told = subprocess.run(
        [sys.executable, "-m", "prewarm.cli", "status", "m/1", "--state-dir", house.state_dir],
        capture_output=True,
        check=True,
    ).stdout
    assert b"\x1b" not in told
    assert b"1 FX miss" in told


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 200_000, 400), (b'{"model":' * 20_000, 400), (b"", 400), (b"\xff\xfe{}", 400),
        (b'{"report": {"calls": [' + b"[" * 100_000, 400), (b'{"model": "\\ud800"}', 400),
        (b'{"report": {"fx_misses": NaN}}', 400), (b'{"first_answer_s": 1e999}', 400),
    ],
)  # fmt: skip
def test_a_hostile_body_is_refused_in_one_line(shared: Served, body: bytes, status: int) -> None:
    answer = shared.post("/v1/reports", body)
    assert answer.status == status
    message = answer.json["error"]["message"]
    assert message.isprintable()
    assert len(message) < 2_000
    assert (_kept(shared), shared.told) == ((), [])


@pytest.mark.parametrize("name", ["graphs", "calls", "processes", "files", "compilers"])
def test_endless_lists_are_refused(shared: Served, name: str) -> None:
    endless = [{} if name in ("graphs", "calls", "processes") else ""] * 10_001
    answer = shared.post("/v1/reports", _sent(report={name: endless}))
    assert (answer.status, f"report.{name}" in answer.json["error"]["message"]) == (400, True)


@pytest.mark.parametrize("depth", [100, 190, 250, 5_000])
def test_deep_nesting_is_kept_or_refused_but_no_fault(house: Served, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    body = json.dumps(_sent(report={**ZEROS, "calls": [{"sizes": "HERE"}]})).encode()
    answer = house.post("/v1/reports", body.replace(b'"HERE"', nested))
    assert answer.status in (201, 400)
    assert house.told == []

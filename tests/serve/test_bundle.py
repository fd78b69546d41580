from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest

from prewarm.serve import bundle, connection
from prewarm.store.bundle import bundle_path

from .served import Served

CONTENT = bytes(range(256)) * 1_000


@pytest.fixture(scope="module")
def sha256(served: Served) -> str:
    return served.add_bundle(CONTENT)


@pytest.mark.parametrize("tcp", [False, True])
def test_a_bundle_is_answered_whole(served: Served, sha256: str, tcp: bool) -> None:
    answer = served.get(f"/v1/bundles/{sha256}", tcp=tcp)
    assert (answer.status, answer.body) == (200, CONTENT)
    assert answer.headers["etag"] == f'"{sha256}"'
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert answer.headers["accept-ranges"] == "bytes"
    assert "immutable" in answer.headers["cache-control"]


def test_an_empty_file_is_an_empty_answer(served: Served) -> None:
    answer = served.get(f"/v1/bundles/{served.add_bundle(b'')}")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [("bytes=0-0", 0, 0), ("bytes=100-70000", 100, 70_000), ("bytes=-5", 255_995, 255_999),
     ("bytes=255999-", 255_999, 255_999)],
)  # fmt: skip
def test_a_range_is_answered_in_part(
    served: Served, sha256: str, asked: str, first: int, last: int
) -> None:
    answer = served.get(f"/v1/bundles/{sha256}", headers={"Range": asked})
    assert (answer.status, answer.body) == (206, CONTENT[first : last + 1])
    assert answer.headers["content-range"] == f"bytes {first}-{last}/{len(CONTENT)}"


@pytest.mark.parametrize("asked", ["bytes=0-1,5-6", "lines=1-2", "bytes=rubbish"])
def test_other_ranges_are_passed_over(served: Served, sha256: str, asked: str) -> None:
    answer = served.get(f"/v1/bundles/{sha256}", headers={"Range": asked})
    assert (answer.status, len(answer.body)) == (200, len(CONTENT))


def test_a_range_behind_the_end_is_refused(served: Served, sha256: str) -> None:
    answer = served.get(f"/v1/bundles/{sha256}", headers={"Range": "bytes=256000-"})
    assert (answer.status, answer.code) == (416, "bad_range")
    assert answer.headers["content-range"] == "bytes */256000"


def test_a_range_is_taken_only_of_the_content_that_the_reader_means(
    served: Served, sha256: str
) -> None:
    def asked(if_range: str) -> int:
        headers = {"Range": "bytes=0-9", "If-Range": if_range}
        return served.get(f"/v1/bundles/{sha256}", headers=headers).status

    assert asked(f'"{sha256}"') == 206
    assert asked(f'"{"0" * 64}"') == 200
    assert asked("Mon, 30 Nov 2026 09:00:00 GMT") == 200


def test_a_reader_that_has_it_gets_no_body(served: Served, sha256: str) -> None:
    answer = served.get(f"/v1/bundles/{sha256}", headers={"If-None-Match": f'"{sha256}"'})
    assert (answer.status, answer.body) == (304, b"")


def test_head_tells_the_whole_length_whatever_the_range(served: Served, sha256: str) -> None:
    answer = served.ask("HEAD", f"/v1/bundles/{sha256}", headers={"Range": "bytes=0-9"})
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(CONTENT))


def test_a_bundle_that_is_not_here_is_told(served: Served) -> None:
    answer = served.get(f"/v1/bundles/{'0' * 64}")
    assert (answer.status, answer.code) == (404, "no_bundle")


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("../../etc/passwd", 404), ("..%2f..%2fetc%2fpasswd", 404), ("%2e%2e/%2e%2e/x", 404),
        ("/etc/passwd", 404), ("", 404), ("A" * 64, 400), ("a" * 63, 400), ("a" * 65, 400),
        ("a" * 64 + "/", 404), ("a" * 64 + "%0a", 400), ("a" * 64 + "%00", 400), ("..", 400),
        ("g" * 64, 400), ("٣" .encode().hex() * 16, 404), ("%D9%A3" * 64, 400),
        ("a" * 64 + ".tar.zst", 400), ("a" * 20_000, 400),
    ],
)  # fmt: skip
def test_a_hostile_name_reaches_no_file(served: Served, name: str, status: int) -> None:
    answer = served.get(f"/v1/bundles/{name}")
    assert answer.status == status
    assert b"root" not in answer.body


@pytest.mark.parametrize("kind", ["directory", "link", "pipe", "socket"])
def test_what_is_no_file_is_not_answered(served: Served, kind: str) -> None:
    name = {"directory": "d", "link": "e", "pipe": "f", "socket": "0"}[kind] * 64
    path = bundle_path(served.cache_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"{served.root}/s")
        (served.root / "s").rename(path)
    answer = served.get(f"/v1/bundles/{name}")
    assert (answer.status, answer.code) == (500, "corrupt")


def test_a_bundle_that_becomes_shorter_ends_the_connection(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    house = serve()
    sha256 = house.add_bundle(CONTENT)
    path = bundle_path(house.cache_dir, sha256)
    parse = bundle.parse_range

    def cut(*of: Any) -> object:
        os.truncate(path, 1_000)
        return parse(*of)

    monkeypatch.setattr(bundle, "parse_range", cut)
    with pytest.raises(http.client.IncompleteRead):
        house.get(f"/v1/bundles/{sha256}")
    assert "became shorter" in house.told[0]


def test_a_reader_that_stops_reading_is_cut_off(
    serve: Callable[..., Served],
    monkeypatch: pytest.MonkeyPatch,
    wait_until: Callable[[Callable[[], bool]], None],
) -> None:
    monkeypatch.setattr(connection, "STALL_S", 0.1)
    house = serve()
    sha256 = house.add_bundle(bytes(20_000_000))
    asking = house.connect()
    asking.request("GET", f"/v1/bundles/{sha256}")
    wait_until(lambda: house.connections == 1)
    wait_until(lambda: house.connections == 0)
    asking.close()


def test_a_reader_that_goes_away_leaves_no_open_file(
    serve: Callable[..., Served], wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    house = serve()
    sha256 = house.add_bundle(bytes(20_000_000))
    name = os.fspath(bundle_path(house.cache_dir, sha256))

    def is_open() -> bool:
        return name in {
            os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd")
        }

    asking = house.connect()
    asking.request("GET", f"/v1/bundles/{sha256}")
    wait_until(is_open)
    asking.close()
    wait_until(lambda: not is_open())


def test_what_a_slow_disk_must_be_asked_for_is_read_all_the_same(
    served: Served, sha256: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_in_memory(*_: object) -> int:
        raise BlockingIOError

    monkeypatch.setattr("prewarm.serve.bundle.os.preadv", not_in_memory)
    assert served.get(f"/v1/bundles/{sha256}").body == CONTENT

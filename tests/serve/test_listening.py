from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from prewarm.errors import ConfigError, LockHeld, NotWritable
from prewarm.serve.listening import listen_on_path, listen_on_port

TOKEN = "a-token-for-the-tests"


@pytest.fixture
def path(open_root: Path) -> Path:
    return open_root / f"{len(os.listdir(open_root))}.sock"


def test_a_socket_has_its_mode_and_its_directory_nothing_else(open_root: Path) -> None:
    path = open_root / "below" / "s"
    listener = listen_on_path(path, mode=0o660)
    found = path.lstat()
    assert (stat.S_ISSOCK(found.st_mode), stat.S_IMODE(found.st_mode)) == (True, 0o660)
    assert os.listdir(path.parent) == ["s"]
    assert listener.where == f"unix:{path}"
    listener.close()
    assert os.listdir(path.parent) == []


def test_a_dead_socket_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listener = listen_on_path(path, mode=0o600)
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
    listener.close()


def test_a_socket_that_somebody_listens_on_is_left_alone(path: Path) -> None:
    listener = listen_on_path(path, mode=0o600)
    with pytest.raises(LockHeld, match="another process listens there"):
        listen_on_path(path, mode=0o600)
    assert path.exists()
    listener.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_what_is_no_socket_is_left_alone(path: Path, kind: str) -> None:
    if kind == "file":
        path.write_bytes(b"precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="something else is there"):
        listen_on_path(path, mode=0o600)
    assert path.lstat()


def test_closing_leaves_the_socket_of_a_successor(path: Path) -> None:
    first = listen_on_path(path, mode=0o600)
    first.socket.close()
    second = listen_on_path(path, mode=0o600)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


def test_a_path_that_is_too_long_is_told(open_root: Path) -> None:
    with pytest.raises(ConfigError, match="longer than the 107 bytes"):
        listen_on_path(open_root / ("x" * 108), mode=0o600)


def test_a_directory_that_cannot_be_written_is_told() -> None:
    with pytest.raises(NotWritable, match=r"socket /proc/self/task/s: cannot be made"):
        listen_on_path(Path("/proc/self/task/s"), mode=0o600)


def test_a_port_that_is_taken_is_told() -> None:
    listener = listen_on_port("127.0.0.1", 0, token=None)
    port = listener.socket.getsockname()[1]
    assert listener.where == f"http://127.0.0.1:{port}"
    with pytest.raises(ConfigError, match=f"127.0.0.1:{port}: cannot listen there"):
        listen_on_port("127.0.0.1", port, token=None)
    listener.close()


def test_an_address_that_others_reach_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="need a token"):
        listen_on_port("0.0.0.0", 0, token=None)
    listen_on_port("0.0.0.0", 0, token=TOKEN).close()


def test_an_address_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match="is no address of this machine"):
        listen_on_port("no host at all", 0, token=None)

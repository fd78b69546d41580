"""The daemon as a process, with real files and the fake child: it builds, survives and ends."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

Wait = Callable[[Callable[[], bool]], None]


class Service:
    """One ``prewarm serve`` on a shop's directories, and what it logs."""

    def __init__(self, shop: Any, variables: Mapping[str, str]) -> None:
        self.shop = shop
        self.lines: list[dict[str, Any]] = []
        environ = {
            **{
                name: value for name, value in os.environ.items() if not name.startswith("PREWARM_")
            },
            "PREWARM_REGISTRY": str(shop.settings.registry),
            "PREWARM_CACHE_DIR": str(shop.settings.cache_dir),
            "PREWARM_STATE_DIR": str(shop.settings.state_dir),
            "PREWARM_BUILDER": shop.settings.builder,
            "PREWARM_SETTLE_S": "0.2",
            "PREWARM_LISTEN": "off",
            **variables,
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "prewarm.cli", "serve", "--log-format", "json"],
            env=environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for line in stream:
                # An error of the command line is told as by every other command.
                self.lines.append(
                    json.loads(line) if line.startswith("{") else {"event": "text", "detail": line}
                )

    def events(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def status(self, model: str) -> str | None:
        from prewarm.store.view import read_status

        found = {row.model: row.status for row in read_status(self.shop.settings.state_dir)}
        return found.get(model)

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(timeout=15)
        self.reader.join(5)
        return code


@pytest.fixture
def serve(shop) -> Iterator[Callable[..., Service]]:
    services: list[Service] = []

    def start(**variables: str) -> Service:
        service = Service(shop, variables)
        services.append(service)
        return service

    yield start
    for service in services:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
        service.reader.join(5)


def test_what_is_there_and_what_arrives_becomes_warm(shop, serve, wait_until: Wait) -> None:
    shop.model("first")
    service = serve()
    wait_until(lambda: [e["model"] for e in service.events("warm")] == ["first"])
    [devices] = service.events("devices")
    assert (devices["devices"][0], devices["cpu_workers"]) == ("cpu", 1)
    assert devices["children"].startswith(("in process groups", "in cgroups of their own"))
    shop.model("second", b"other weights")
    wait_until(lambda: len(service.events("warm")) == 2)
    assert [entry["status"] for entry in shop.manifest()["entries"]] == ["warm", "warm"]
    assert service.end() == 0
    assert service.events("stopped")


def test_what_goes_is_retired_and_what_changes_is_built_anew(shop, serve, wait_until: Wait) -> None:
    directory = shop.model("m")
    other = shop.model("other", b"other weights")
    service = serve()
    wait_until(lambda: len(service.events("warm")) == 2)
    (directory / "model.bin").write_bytes(b"changed")
    wait_until(lambda: len(service.events("warm")) == 3)
    for file in other.iterdir():
        file.unlink()
    other.rmdir()
    wait_until(lambda: service.status("other") == "retired")
    assert service.status("m") == "warm"


def test_a_second_daemon_says_who_holds_the_lock(shop, serve, wait_until: Wait) -> None:
    service = serve()
    wait_until(lambda: bool(service.events("started")))
    second = serve()
    assert second.process.wait(timeout=15) == 1
    second.reader.join(5)
    assert "prewarm serve" in second.events("text")[0]["detail"]
    assert service.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_child_and_queues_the_work_again(
    shop, serve, wait_until: Wait, tmp_path: Path, number: int
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    shop.model("m", marks=str(marks), hold=["compile-begun"])
    service = serve()
    wait_until((marks / "compile-begun.reached").exists)
    assert service.status("m") == "building"
    assert service.end(number) == 0
    assert service.status("m") == "queued"
    (marks / "compile-begun.go").touch()
    again = serve()
    wait_until(lambda: bool(again.events("warm")))


def test_after_kill_9_the_next_one_finishes_the_work_at_once(
    shop, serve, wait_until: Wait, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    shop.model("m", marks=str(marks), hold=["compile-begun"])
    service = serve()
    wait_until((marks / "compile-begun.reached").exists)
    service.process.kill()
    service.process.wait()
    (marks / "compile-begun.go").touch()
    again = serve()
    # Not after the dead one's lease is over.
    wait_until(lambda: bool(again.events("warm")))


def test_systemd_hears_ready_at_once_then_what_happens_and_the_watchdog(
    shop, serve, wait_until: Wait, tmp_path: Path
) -> None:
    shop.model("m")
    address = tmp_path / "notify"
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(15)
        service = serve(NOTIFY_SOCKET=str(address), WATCHDOG_USEC="30000000")

        def heard(word: str) -> bool:
            told.append(listener.recv(4096).decode())
            return any(word in message for message in told)

        wait_until(lambda: heard("READY=1"))
        wait_until(lambda: heard("WATCHDOG=1"))
        wait_until(lambda: heard("idle; 0 waiting"))
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: heard("RELOADING=1"))
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: heard("STOPPING=1"))
    assert service.process.wait(timeout=15) == 0


def test_reading_a_large_checkpoint_neither_looks_like_a_hang_nor_holds_the_end_up(
    shop, serve, wait_until: Wait, tmp_path: Path
) -> None:
    address = tmp_path / "notify"
    directory = shop.model("m")
    os.truncate(directory / "model.bin", 1 << 40)  # no bytes on the disk, and hours of reading
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(15)
        service = serve(NOTIFY_SOCKET=str(address), WATCHDOG_USEC="30000000")
        wait_until(lambda: bool(service.events("digest")))
        listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.recv(4096)  # what was told before
        listener.settimeout(15)
        wait_until(lambda: b"WATCHDOG=1" in listener.recv(4096))
        assert service.end() == 0
    assert service.events("trouble") == []


def test_an_entry_that_cannot_be_built_stops_no_other(shop, serve, wait_until: Wait) -> None:
    shop.model("bad", compile="exit")
    shop.model("good", b"other weights", graph="h")
    service = serve()
    wait_until(lambda: bool(service.events("failed")) and bool(service.events("warm")))
    assert service.status("bad") == "failed"
    assert service.status("good") == "warm"


def test_a_full_disk_leaves_the_service_up_and_the_queue_whole(
    shop, serve, wait_until: Wait
) -> None:
    from prewarm.store.view import read_status

    cache_dir = shop.settings.cache_dir
    cache_dir.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", "size=70m", "prewarm-test", str(cache_dir)]
    mounted = subprocess.run(argv, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    try:
        (cache_dir / "full").write_bytes(bytes(10_000_000))
        shop.model("m1")
        service = serve()
        wait_until(lambda: bool(service.events("trouble")))
        assert service.status("m1") == "queued"
        [trouble] = service.events("trouble")
        assert trouble["code"] == "no_space"

        def reason() -> str:
            return read_status(shop.settings.state_dir)[0].reason or ""

        wait_until(lambda: reason() == trouble["detail"])
        assert f"waits for room: cache_dir {cache_dir} has " in reason()
        (cache_dir / "full").unlink()
        wait_until(lambda: service.status("m1") == "warm")
        assert service.end() == 0
    finally:
        subprocess.run(["umount", "-l", str(cache_dir)], check=True)


def test_retry_is_taken_up_and_house_is_kept_at_once(shop, serve, wait_until: Wait) -> None:
    marker = shop.root / "mended"
    shop.model("m", compile="exit", elsewhere=str(marker))
    service = serve()
    wait_until(lambda: bool(service.events("failed")))
    note = shop.settings.state_dir / "house.json"
    wait_until(note.exists)  # a service that is started often keeps house too
    note.unlink()
    marker.write_text('{"compile": null}')
    # Neither the checkpoint changed, nor is its next try or a full look due.
    assert shop.prewarm("retry", "m") == (0, "")
    assert shop.prewarm("gc") == (0, "")
    assert shop.printed.startswith(f"asked prewarm serve (pid {service.process.pid}, ")
    wait_until(lambda: service.status("m") == "warm")
    wait_until(note.exists)
    assert service.end() == 0


def test_the_log_of_a_build_is_shown_while_it_runs(shop, serve, wait_until: Wait) -> None:
    shop.model("m", compile="hang")
    service = serve()
    wait_until(lambda: bool(service.events("begin")))

    def shown() -> bool:
        assert shop.prewarm("status", "m", "--log") == (0, "")
        return "told by the fake: tracing" in shop.printed

    wait_until(shown)
    assert f"== m (building): {shop.entry('m').log}\n" in shop.printed
    assert service.end() == 0


def ask(service: Service, path: str) -> tuple[int, bytes]:
    """Ask over the Unix socket in the state directory."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(15)
        channel.connect(str(service.shop.settings.state_dir / "prewarm.sock"))
        channel.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while part := channel.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_it_answers_while_it_builds(shop, serve, wait_until: Wait) -> None:
    shop.model("m")
    service = serve()
    wait_until(lambda: bool(service.events("warm")))
    assert ask(service, "/healthz")[0] == 200
    assert ask(service, "/readyz")[0] == 200
    code, body = ask(service, "/v1/manifest")
    (manifest,) = json.loads(body)["manifests"]
    assert code == 200
    assert [entry["model"] for entry in manifest["signed"]["entries"]] == ["m"]
    assert b'prewarm_entries{status="warm"} 1.0' in ask(service, "/metrics")[1]


def test_sighup_reads_the_configuration_again(shop, serve, wait_until: Wait, tmp_path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("grace_s = 60.0\n")
    service = serve(PREWARM_CONFIG=str(config))
    wait_until(lambda: bool(service.events("started")))
    config.write_text('grace_s = "no number"\n')
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any("grace_s" in e["detail"] for e in service.events("trouble")))
    config.write_text('grace_s = 5.0\nlisten = "127.0.0.1:1"\n')
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: bool(service.events("reloaded")))
    assert service.end() == 0

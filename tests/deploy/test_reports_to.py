"""Which builder a deployment's starts are told to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from prewarm.config import SOCKET_NAME, Settings
from prewarm.deploy import reports_to as module
from prewarm.deploy.address import address_of
from prewarm.deploy.reports_to import reports_to


@pytest.fixture(autouse=True)
def _no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OF_THE_SERVICE", tmp_path / "service" / SOCKET_NAME)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(None, tmp_path / "cache", tmp_path, builder="test")


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Path]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        yield tmp_path / SOCKET_NAME


@pytest.mark.parametrize("address", ["unix:/run/b.sock", "http://host:7791", "https://host"])
def test_who_reads_from_a_builder_reports_to_it(address: str, settings: Settings) -> None:
    found = reports_to(address_of(address), settings)
    assert found is not None
    assert found.to_dict() == {"to": address, "token_file": None}


def test_the_token_is_named_and_not_copied(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    with_token = replace(settings, token_file=tmp_path / "token")
    found = reports_to(address_of("http://host:7791"), with_token)
    assert found is not None
    assert found.to_dict()["token_file"] == str(tmp_path / "token")


def test_a_directory_is_reported_to_the_builder_of_this_machine(
    settings: Settings, listening: Path, tmp_path: Path
) -> None:
    found = reports_to(tmp_path / "cache", settings)
    assert found is not None
    assert found.to_dict() == {"to": f"unix:{listening}", "token_file": None}


def test_where_nobody_listens_nobody_is_told(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / SOCKET_NAME).write_text("no socket")
    assert reports_to(tmp_path / "cache", settings) is None
    assert reports_to(tmp_path / "cache", None) is None

"""What --manifest may name."""

from __future__ import annotations

from pathlib import Path

import pytest

from prewarm.deploy.address import Endpoint, address_of
from prewarm.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/var/cache/prewarm", Path("/var/cache/prewarm")),
        ("cache", Path("cache")),
        ("unix:/run/p.sock", Endpoint("unix", "localhost", 0, "/run/p.sock")),
        ("unix:///run/p.sock", Endpoint("unix", "localhost", 0, "/run/p.sock")),
        ("http://gpu-1:7791", Endpoint("http", "gpu-1", 7791, "")),
        ("http://gpu-1", Endpoint("http", "gpu-1", 80, "")),
        ("https://b.example/", Endpoint("https", "b.example", 443, "")),
        ("https://b.example:8443/team/", Endpoint("https", "b.example", 8443, "/team")),
        ("http://[::1]:7791/v1/manifest", Endpoint("http", "::1", 7791, "")),
        ("HTTP://GPU-1/v1/manifest/", Endpoint("http", "gpu-1", 80, "")),
    ],
)
def test_an_address_is_read(text: str, expected: object) -> None:
    assert address_of(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ftp://b", "file:///etc", "://", "http://", "http://:80", "http://b:port", "http://b:99999",
        "http://b/?q=1", "http://b/#f", "http://b/a b", "http://b\r\nx: y/", "http://[::1", "http://ü/",
    ],
)  # fmt: skip
def test_what_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a directory, unix:PATH"):
        address_of(text)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match="PREWARM_TOKEN_FILE") as caught:
        address_of("https://me:hunter2@b/")

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "unix:/run/p.sock",
        "http://gpu-1:7791",
        "http://gpu-1/team",
        "https://b",
        "http://[::1]:7791",
    ],
)
def test_it_is_told_as_it_was_given(text: str) -> None:
    assert str(address_of(text)) == text


def test_a_path_before_the_builders_own_is_kept_in_requests() -> None:
    address = address_of("https://b/team")

    assert isinstance(address, Endpoint)
    assert address.target("/v1/manifest") == "/team/v1/manifest"

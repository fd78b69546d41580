"""Trusted keys as they are given: texts of several forms, and files that hold some."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from prewarm.errors import ConfigError
from prewarm.store.signing import load_or_create_key
from prewarm.store.trusted_keys import trusted_keys

RAW = bytes(range(32))
TEXT = "ed25519:" + base64.b64encode(RAW).decode()
OTHER = "ed25519:" + base64.b64encode(RAW[::-1]).decode()


@pytest.mark.parametrize(
    "given",
    [TEXT, TEXT.removeprefix("ed25519:"), RAW.hex(), RAW.hex().upper(), "ed25519:" + RAW.hex()],
)
def test_a_key_may_be_written_in_base64_or_hexadecimal(given: str) -> None:
    assert trusted_keys([given]) == (TEXT,)


def test_a_file_holds_one_a_line_with_comments(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# builders\n{TEXT}  # gpu-1\n\n{RAW[::-1].hex()}\n")

    assert trusted_keys([str(file), OTHER]) == (TEXT, OTHER)


def test_the_file_that_a_builder_writes_is_one(tmp_path: Path) -> None:
    key = load_or_create_key(tmp_path)

    assert trusted_keys([str(tmp_path / "signing.pub")]) == (key.public,)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "no file that can be read"),
        (b"", "holds no key"),
        (b"# only a comment", "holds no key"),
        (b"\xff\x00" * 100_000, "is no public key"),
        (b"prewarm signing key\nAAAA", "is no public key"),
        (f"{TEXT}\nrsa:AAAA".encode(), "'rsa:AAAA': is no public key"),
    ],
)
def test_what_is_no_key_is_told(tmp_path: Path, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / "keys").write_bytes(content)

    with pytest.raises(ConfigError, match=told):
        trusted_keys([str(tmp_path / "keys")])


@pytest.mark.parametrize("given", ["ed25519:", "ed25519:QQ==", "ed25519:../etc/passwd"])
def test_a_key_of_a_wrong_form_is_no_file(given: str) -> None:
    with pytest.raises(ConfigError, match="is no public key"):
        trusted_keys([given])

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from prewarm.errors import ConfigError, NotWritable
from prewarm.store.signing import (
    KEY_NAME,
    SigningKey,
    key_id,
    load_or_create_key,
    public_bytes,
    public_key,
    verify,
)

Unprivileged = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def key(state_dir: Path) -> SigningKey:
    return load_or_create_key(state_dir)


def test_a_key_is_made_once_for_its_owner_alone(state_dir: Path, key: SigningKey) -> None:
    path = state_dir / KEY_NAME
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_key(state_dir) == key
    assert sorted(os.listdir(state_dir)) == [KEY_NAME, "signing.pub"]
    first, second = path.read_text().splitlines()
    assert "Private" in first
    assert len(second) == 44


def test_another_file_may_be_named(state_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "keys" / "mine.key"
    made = load_or_create_key(state_dir, path)
    assert load_or_create_key(state_dir, path) == made
    assert not state_dir.exists()


def test_names_of_a_key(key: SigningKey) -> None:
    assert key.public.startswith("ed25519:")
    assert key.keyid == key_id(public_bytes(key.public))
    assert len(key.keyid) == 16
    assert repr(key._private) not in repr(key)


def test_a_signature_holds_for_these_bytes_and_this_key_alone(
    key: SigningKey, tmp_path: Path
) -> None:
    other = load_or_create_key(tmp_path / "other")
    signature = key.sign(b"signed")
    assert verify(b"signed", [signature], [key.public]) == key.keyid
    assert verify(b"signed", [signature], [other.public, key.public]) == key.keyid
    assert verify(b"Signed", [signature], [key.public]) is None
    assert verify(b"signed", [signature], [other.public]) is None
    assert verify(b"signed", [], [key.public]) is None
    assert verify(b"signed", [other.sign(b"signed"), signature], [key.public]) == key.keyid
    # A foreign signature under the trusted key's id.
    forged = {**other.sign(b"signed"), "keyid": key.keyid}
    assert verify(b"signed", [forged], [key.public]) is None
    for sig in ("", "no base64!", "ü", "QQ=="):
        assert verify(b"signed", [{"keyid": key.keyid, "sig": sig}], [key.public]) is None


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:QQ==", "rsa:" + "A" * 44, "A" * 44])
def test_a_trusted_key_of_another_form_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="is no public key"):
        verify(b"", [], [text])


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_key_that_others_can_read_is_refused_with_the_command(
    state_dir: Path, key: SigningKey, mode: int
) -> None:
    path = state_dir / KEY_NAME
    path.chmod(mode)
    with pytest.raises(ConfigError, match=rf"mode {mode:o}\); run: chmod 600 {path}"):
        load_or_create_key(state_dir)
    path.chmod(0o400)
    assert load_or_create_key(state_dir) == key


def test_a_key_that_others_can_replace_is_refused_with_the_command(
    state_dir: Path, key: SigningKey
) -> None:
    state_dir.chmod(0o777)
    with pytest.raises(ConfigError, match=f"run: chmod go-w {state_dir}"):
        load_or_create_key(state_dir)
    state_dir.chmod(0o1777)
    assert load_or_create_key(state_dir) == key


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_key_of_another_user_is_refused(state_dir: Path, key: SigningKey) -> None:
    os.chown(state_dir / KEY_NAME, 12345, -1)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        load_or_create_key(state_dir)


@pytest.mark.parametrize("content", ["", "x", "x\ny\n", None, "{header}\nQQ==\n", "{header}\n"])
def test_a_file_that_is_no_key_is_told_and_kept(
    state_dir: Path, key: SigningKey, content: str | None
) -> None:
    path = state_dir / KEY_NAME
    header = path.read_text().splitlines()[0]
    data = os.urandom(10_000) if content is None else content.format(header=header).encode()
    path.write_bytes(data)
    with pytest.raises(ConfigError, match="is no key that prewarm wrote"):
        load_or_create_key(state_dir)
    assert path.read_bytes() == data


def test_the_public_key_lies_beside_it_for_everybody(state_dir: Path, key: SigningKey) -> None:
    path = state_dir / "signing.pub"

    assert path.read_text() == f"{key.public}\n"
    assert path.stat().st_mode & 0o777 == 0o644
    path.write_text("something else")
    load_or_create_key(state_dir)
    assert path.read_text() == f"{key.public}\n"


def test_a_private_key_is_never_taken_for_the_public_one(tmp_path: Path) -> None:
    path = tmp_path / "builder.pub"
    key = load_or_create_key(tmp_path, path)

    assert load_or_create_key(tmp_path, path) == key
    assert (tmp_path / "builder.pub.pub").read_text() == f"{key.public}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone can become somebody else")
def test_the_public_key_is_told_to_those_who_may_not_read_the_private_one(
    open_path: Path, unprivileged: Unprivileged
) -> None:
    state = open_path / "state"
    assert public_key(state) is None
    key = load_or_create_key(state)

    with unprivileged():
        assert public_key(state) == key.public
        with pytest.raises(ConfigError, match="Permission denied"):
            load_or_create_key(state)


def test_a_state_dir_that_cannot_be_written_is_told(
    open_path: Path, unprivileged: Unprivileged
) -> None:
    with unprivileged(), pytest.raises(NotWritable):
        load_or_create_key(open_path)


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "broken").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_or_create_key(tmp_path, tmp_path / "broken")

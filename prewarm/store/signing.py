"""The builder's signing key: Ed25519, kept beside the database, and the check of signatures.

Owns the key file, the public key in a file beside it, and the text forms of keys. What must be
signed, and by whom, is for the caller.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from prewarm.errors import ConfigError, NoSpace, NotWritable
from prewarm.store.whole_file import make_directory, whole_file, write_whole

KEY_NAME = "signing.key"

#: The text form of a public key, for ``--trust`` and ``PREWARM_TRUST``.
PUBLIC_PREFIX = "ed25519:"

_HEADER = "prewarm signing key, ed25519, format 1. Private: keep it to its owner."
_RAW_BYTES = 32
_LONGEST_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key; ``public`` is its text form for those who trust it."""

    keyid: str
    public: str
    _private: bytes = field(repr=False)

    def sign(self, signed: bytes) -> dict[str, str]:
        """Return the signature over canonical JSON as it stands in a manifest."""
        # cryptography takes 60 ms to import, which status and an unsigned hook need not pay.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        signature = Ed25519PrivateKey.from_private_bytes(self._private).sign(signed)
        return {"keyid": self.keyid, "sig": _to_text(signature)}


def load_or_create_key(state_dir: Path, signing_key: Path | None = None) -> SigningKey:
    """Return the key in ``signing_key`` or else the state directory; one is made where none is.

    Raises:
        ConfigError: the file is no key, or others may read or replace it.
        NoSpace: no space left for a new one.
        NotWritable: the directory cannot be written.
    """
    path = signing_key or state_dir / KEY_NAME
    if not os.path.lexists(path):
        make_directory(path.parent)
        _write(path)
    key = _load(path)
    _write_public(_public_path(path), key.public)
    return key


def public_key(state_dir: Path, signing_key: Path | None = None) -> str | None:
    """Return the public key of a builder, also for those who may not read the private one.

    None where none was made yet.

    Raises:
        ConfigError: the file is no key, others may read or replace it, or nothing can be read.
    """
    path = signing_key or state_dir / KEY_NAME
    if not os.path.lexists(path):
        return None
    if not os.access(path, os.R_OK, effective_ids=True):
        with suppress(OSError):
            text = _public_path(path).read_bytes().decode("utf-8", "replace").strip()
            return PUBLIC_PREFIX + _to_text(public_bytes(text))
    return _load(path).public


def verify(
    signed: bytes | memoryview, signatures: Iterable[Mapping[str, str]], trusted: Iterable[str]
) -> str | None:
    """Return the id of a trusted key that signed these bytes, or None.

    Raises:
        ConfigError: a trusted key has no proper form.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    raw_keys = {key_id(raw): raw for raw in map(public_bytes, trusted)}
    for signature in signatures:
        raw = raw_keys.get(signature["keyid"])
        sig = _from_text(signature["sig"])
        if raw is None or sig is None:
            continue
        try:
            Ed25519PublicKey.from_public_bytes(raw).verify(sig, signed)
        except InvalidSignature:
            continue
        return signature["keyid"]
    return None


def public_bytes(text: str) -> bytes:
    """Return the raw public key of its text form.

    Raises:
        ConfigError: it is none.
    """
    raw = _from_text(text.removeprefix(PUBLIC_PREFIX)) if text.startswith(PUBLIC_PREFIX) else None
    if raw is None or len(raw) != _RAW_BYTES:
        raise ConfigError(
            f"trusted key {text[:80]!r}: is no public key; expected {PUBLIC_PREFIX} and 44 "
            "characters of base64, as `prewarm doctor` prints it on the builder"
        )
    return raw


def key_id(public: bytes) -> str:
    """Return the short name of a raw public key."""
    return hashlib.sha256(public).hexdigest()[:16]


def _write(path: Path) -> None:
    text = f"{_HEADER}\n{_to_text(os.urandom(_RAW_BYTES))}\n"
    with whole_file(path, mode=0o600, needed_bytes=len(text)) as file:
        file.write(text.encode())


def _public_path(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(".key") + ".pub")


def _write_public(path: Path, public: str) -> None:
    text = f"{public}\n".encode()
    # Deployments only get the key more easily by it: a directory that is closed stays closed.
    with suppress(OSError, NoSpace, NotWritable):
        if path.is_symlink() or not path.is_file() or path.read_bytes() != text:
            write_whole(path, text)


def _load(path: Path) -> SigningKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            text = file.read(_LONGEST_FILE_BYTES)
    except OSError as error:
        raise ConfigError(
            f"signing key {path}: cannot be read ({error.strerror}); give this user access to it, "
            "or name another with PREWARM_SIGNING_KEY"
        ) from error
    lines = text.decode("ascii", "replace").splitlines()
    raw = _from_text(lines[1]) if len(lines) == 2 and lines[0] == _HEADER else None
    if raw is None or len(raw) != _RAW_BYTES:
        raise ConfigError(
            f"signing key {path}: is no key that prewarm wrote; put the key back, or move the file "
            "away for a new one (deployments that trust the old key must then trust the new one)"
        )
    public = Ed25519PrivateKey.from_private_bytes(raw).public_key().public_bytes_raw()
    return SigningKey(key_id(public), PUBLIC_PREFIX + _to_text(public), raw)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_mode & 0o077:
        raise ConfigError(
            f"signing key {path}: can be read by others (mode {stat.S_IMODE(found.st_mode):03o}); "
            f"run: chmod 600 {path}",
            code="key_exposed",
        )
    if found.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"signing key {path}: belongs to user {found.st_uid}; run: chown {os.geteuid()} {path}",
            code="key_exposed",
        )
    directory = path.parent.stat()
    # In a sticky directory others can add files but not replace this one.
    if directory.st_mode & 0o022 and not directory.st_mode & stat.S_ISVTX:
        raise ConfigError(
            f"signing key {path}: others can replace it; run: chmod go-w {path.parent}",
            code="key_exposed",
        )


def _to_text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def _from_text(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None

"""The public keys that a reader trusts, as they are given: texts, and files that hold some.

Owns what such a file may hold: one key a line, and comments behind ``#``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from prewarm.errors import ConfigError
from prewarm.setting_value import KEY
from prewarm.store.signing import PUBLIC_PREFIX, public_bytes

_LONGEST_FILE_BYTES = 64 << 10


def trusted_keys(given: Iterable[str]) -> tuple[str, ...]:
    """Return every key in its text form, each once.

    Raises:
        ConfigError: one is no key, or a file cannot be read or holds none.
    """
    found = (_text_form(key) for one in given for key in _keys(one))
    return tuple(dict.fromkeys(found))


def _keys(given: str) -> Iterator[str]:
    if KEY.fullmatch(given):
        yield given
        return
    try:
        with Path(given).open("rb") as file:
            text = file.read(_LONGEST_FILE_BYTES).decode("ascii", "replace")
    except OSError as error:
        raise ConfigError(
            f"trusted key {given}: is no key, and no file that can be read ({error.strerror}); "
            f"give {PUBLIC_PREFIX} and 44 characters of base64, as `prewarm doctor` prints it on "
            "the builder, or a file with such lines"
        ) from error
    keys = [line.partition("#")[0].strip() for line in text.splitlines()]
    if not any(keys):
        raise ConfigError(f"trusted key {given}: the file holds no key")
    yield from filter(None, keys)


def _text_form(key: str) -> str:
    bare = key.removeprefix(PUBLIC_PREFIX)
    if len(bare) == 64:
        with suppress(ValueError):  # told by the check of its form
            bare = base64.b64encode(bytes.fromhex(bare)).decode()
    # A bare key may leave out its kind, but not have another one.
    text = bare if ":" in bare else PUBLIC_PREFIX + bare
    public_bytes(text)
    return text

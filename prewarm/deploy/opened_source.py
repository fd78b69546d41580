"""The source that a deployment names by an address."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prewarm.deploy.address import Address, unix_endpoint
from prewarm.deploy.deadline import Deadline
from prewarm.deploy.directory import Directory
from prewarm.deploy.keep import Keep
from prewarm.deploy.outcome import Tell
from prewarm.deploy.source import Source
from prewarm.store.trusted_keys import trusted_keys


def open_source(
    address: Address,
    keep: Keep,
    deadline: Deadline,
    *,
    trust: Sequence[str] = (),
    token_file: Path | None = None,
    tell: Tell = lambda _: None,
) -> Source:
    """Return the source at an address; ``trust`` holds public keys, or files that do.

    Raises:
        ConfigError: a trusted key is none, or the token's file cannot be used.
    """
    keys = trusted_keys(trust)
    if isinstance(address, Path):
        # A socket may be named by its path alone.
        if not _is_socket(address):
            return Directory(address, keys, keep, deadline, tell)
        address = unix_endpoint(address.absolute())
    # HTTP takes 40 ms to import, which who reads a directory need not pay.
    from prewarm.deploy.builder import Builder

    return Builder(address, keys, keep, deadline, tell, token_file=token_file)


def _is_socket(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        # Told by whoever reads the directory.
        return False

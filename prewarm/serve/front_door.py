"""The front door: the sockets and the token of a service, as its settings say.

Owns which of them must work: a Unix socket always; the usual TCP port may be another service's,
which is told and no reason not to build.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from prewarm.config import SOCKET_NAME, Settings
from prewarm.errors import ConfigError, PrewarmError
from prewarm.serve.house import House
from prewarm.serve.listening import Listener, listen_on_path, listen_on_port
from prewarm.serve.metrics import Metrics
from prewarm.serve.server import Server
from prewarm.setting_value import LISTEN
from prewarm.store.database import DATABASE_NAME

#: Every user of the machine may connect; what each may do is ``access.py``'s.
_SOCKET_MODE = 0o666
_LONGEST_TOKEN_BYTES = 4096


def open_server(
    settings: Settings,
    metrics: Metrics,
    *,
    wake: Callable[[], None],
    ready: Callable[[], bool],
    tell: Callable[[str], None],
) -> Server:
    """Return a server that listens, not yet serving.

    Raises:
        ConfigError: the token's file, the socket's path or a stated address is of no use.
        LockHeld: another process listens on the socket.
        NotWritable: the socket's directory cannot be written.
    """
    token = read_token(settings.token_file)
    house = House(
        cache_dir=settings.cache_dir,
        database=settings.state_dir / DATABASE_NAME,
        uid=os.geteuid(),
        token=token,
        wake=wake,
        ready=ready,
        metrics=metrics,
        tell=tell,
    )
    listeners = [
        listen_on_path(settings.socket or settings.state_dir / SOCKET_NAME, mode=_SOCKET_MODE)
    ]
    try:
        listeners += _tcp(settings.listen, token, tell)
    except PrewarmError:
        listeners[0].close()
        raise
    for listener in listeners:
        tell(f"answers at {listener.where}")
    return Server(house, listeners)


def _tcp(listen: str, token: str | None, tell: Callable[[str], None]) -> list[Listener]:
    if listen == "off":
        return []
    host, _, port = listen.rpartition(":")
    try:
        return [listen_on_port(host.strip("[]"), int(port), token=token)]
    except ConfigError as error:
        if listen != LISTEN:
            raise
        tell(f"not over TCP: {error}")
        return []


def read_token(file: Path | None) -> str | None:
    """Return the token of its file, None without one.

    Raises:
        ConfigError: the file cannot be read, is empty, or others can read it.
    """
    if file is None:
        return None
    try:
        with file.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            text = stream.read(_LONGEST_TOKEN_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise ConfigError(f"token_file {file}: cannot be read ({error.strerror})") from error
    if mode & 0o077:
        raise ConfigError(
            f"token_file {file}: can be read by others; run: chmod 600 {file}", code="key_exposed"
        )
    if not text:
        raise ConfigError(f"token_file {file}: is empty; write one from `openssl rand -hex 32`")
    return text

"""The sockets that a builder listens on: a Unix socket that appears whole, and TCP.

Owns the socket's file: nobody else's is taken away, a dead one's is replaced, and this one's goes
with it.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from prewarm.errors import ConfigError, LockHeld, NotWritable
from prewarm.serve.peer import Peer
from prewarm.store.whole_file import make_directory

#: What struct sockaddr_un holds, less the zero at its end.
_LONGEST_PATH_BYTES = 107

_KNOCK_S = 2.0


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket; on the Unix socket with its file."""

    socket: socket.socket
    path: Path | None = None
    inode: int | None = None

    @property
    def where(self) -> str:
        """Say where it listens, as a URL."""
        if self.path is not None:
            return f"unix:{self.path}"
        host, port = self.socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def close(self) -> None:
        """Stop listening, and take the file away unless another's stands there by now."""
        self.socket.close()
        if self.path is not None:
            with suppress(OSError):
                if self.path.lstat().st_ino == self.inode:
                    self.path.unlink()


def listen_on_path(path: Path, *, mode: int) -> Listener:
    """Listen on a Unix socket; who may connect is who may write its file by ``mode``.

    Raises:
        ConfigError: something else than a socket is there, or the path is too long for one.
        LockHeld: another process listens there.
        NotWritable: its directory cannot be written.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH_BYTES:
        raise ConfigError(
            f"socket {path}: is longer than the {_LONGEST_PATH_BYTES} bytes that a Unix socket's "
            "path may have; choose a shorter one"
        )
    make_directory(path.parent)
    _check_free(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Under another name until it has its mode: nobody connects to it before.
    hidden = path.parent / f".{secrets.token_hex(3)}"
    try:
        listener.bind(os.fspath(hidden))
        hidden.chmod(mode)
        listener.listen()
        inode = hidden.lstat().st_ino
        hidden.rename(path)
    except OSError as error:
        listener.close()
        hidden.unlink(missing_ok=True)
        cause = error.strerror or str(error)
        raise NotWritable(
            f"socket {path}: cannot be made as user {os.geteuid()} ({cause}); "
            "give this user write access to its directory or choose another"
        ) from error
    return Listener(listener, path, inode)


def listen_on_port(host: str, port: int, *, token: str | None) -> Listener:
    """Listen on TCP; port 0 is any that is free.

    Raises:
        ConfigError: no such address, the port is taken, or the address can be reached from
            elsewhere and there is no token.
    """
    where = f"{host}:{port}"
    try:
        [(family, _, _, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"{where}: is no address of this machine ({error})") from error
    if token is None and not Peer(address=str(address[0])).is_loopback:
        raise ConfigError(
            f"{where}: can be reached from other machines, and they need a token; "
            "set one, or listen on 127.0.0.1"
        )
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        cause = error.strerror or str(error)
        raise ConfigError(f"{where}: cannot listen there ({cause}); choose another") from error
    return Listener(listener)


def _check_free(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigError(f"socket {path}: something else is there; choose another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(_KNOCK_S)
        try:
            knock.connect(os.fspath(path))
        except OSError as error:
            if error.errno in (errno.ECONNREFUSED, errno.ENOENT):
                return
    raise LockHeld(f"socket {path}: another process listens there; end it or choose another path")

"""Reads hostile files one by one within a bound of memory, and says how each was refused.

Usage: ``hostile_child.py LIMIT_BYTES`` with JSON lines on standard input, each a reader's name and
its arguments; answers with a JSON line each. A refusal that is none of prewarm's errors, or memory
that runs out, is told by its name. Used by the banks in tests/store and tests/deploy.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from prewarm.cli.main import main as main_of_prewarm
from prewarm.errors import PrewarmError
from prewarm.store.bundle import unpack
from prewarm.store.manifest_files import read_manifest
from prewarm.store.manifest_signed import read_signed_manifest
from prewarm.store.signing import verify
from prewarm.torchside.deployment import read_deployment


def _unpack(path: str, into: str, sha256: str, size_bytes: int) -> None:
    unpack(Path(path), Path(into), sha256=sha256, size_bytes=size_bytes)


def _manifest(path: str) -> None:
    read_manifest(Path(path))


def _signed(path: str, key: str) -> None:
    read_signed_manifest(Path(path), [key])


def _command(*words: str) -> list[object]:
    """Run a command of prewarm and return how it ended."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(io.StringIO()):
        code = main_of_prewarm(list(words))
    return ["ended", code, "", told.getvalue()]


def _shim(directory: str) -> list[object]:
    """Read ``env.json`` as the shim does: a line instead of an error."""
    told = io.StringIO()
    with contextlib.redirect_stderr(told):
        found = read_deployment(directory)
    return ["ended", found is None, "", told.getvalue()]


ANSWERS: dict[str, Callable[..., list[object]]] = {"command": _command, "shim": _shim}
READERS: dict[str, Callable[..., None]] = {
    "unpack": _unpack, "manifest": _manifest, "signed": _signed,
}  # fmt: skip


def main() -> None:
    verify(b"", [], [])  # cryptography is imported before memory is bounded
    limit_bytes = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        told: list[object]
        try:
            if name in ANSWERS:
                told = ANSWERS[name](*arguments)
            else:
                READERS[name](*arguments)
                told = ["taken", "", "", ""]
        except PrewarmError as error:
            told = ["refused", type(error).__name__, error.code, str(error)]
        except BaseException as error:
            told = ["broke", type(error).__name__, "", str(error)]
        print(json.dumps(told), flush=True)


main()

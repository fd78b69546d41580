"""Packing in a process of its own, so that its 100 MB are gone when it ends.

Owns the one JSON answer between the two sides. The builder stays small; the memory of the window
(``bundle_pack.py``) would otherwise come on top of everything that a scan has loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from prewarm.errors import NoSpace, NotWritable, PrewarmError, StoreCorrupt
from prewarm.store.bundle_format import BundleInfo
from prewarm.store.bundle_pack import pack

_ERRORS: dict[str, type[PrewarmError]] = {
    error.code: error for error in (NoSpace, NotWritable, StoreCorrupt)
}


def pack_apart(tree: Path, target: Path) -> BundleInfo:
    """Do what ``pack`` does, in a child process.

    Raises:
        StoreCorrupt: nothing to pack, a name that no bundle may hold, or the tree changes.
        NoSpace: no space left for the target.
        NotWritable: the target cannot be written.
        PrewarmError: the child was ended from outside.
    """
    ended = subprocess.run(
        [sys.executable, "-m", __name__, str(tree), str(target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer = json.loads(ended.stdout)
    except ValueError:
        last = ended.stderr.strip().rpartition("\n")[2] or "no word"
        raise PrewarmError(
            f"{tree}: packing ended with status {ended.returncode} ({last}); run it again",
            code="pack_failed",
        ) from None
    if "error" in answer:
        raise _ERRORS[answer["code"]](answer["error"])
    return BundleInfo(**{**answer, "skipped": tuple(answer["skipped"])})


def main(arguments: list[str]) -> None:
    """Pack the tree and target that are named, and answer on stdout."""
    tree, target = arguments
    try:
        answer: dict[str, object] = asdict(pack(Path(tree), Path(target)))
    except (NoSpace, NotWritable, StoreCorrupt) as error:
        answer = {"error": str(error), "code": error.code}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1:])

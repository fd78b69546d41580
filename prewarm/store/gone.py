"""Which remembered files are gone for good, so that what is known of them need not be kept.

Owns the judgement. A disk that is not mounted leaves an empty directory, and a server that is away
an error; neither says that a file is gone, and its digest took long to compute.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def gone_files(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths below a directory that is there, and is not empty, but does not hold them.

    Asks the disk once for each path, and once for each directory above that is gone.
    """
    known: dict[Path, bool] = {}
    return tuple(path for path in paths if _is_missing(path) and _is_real(Path(path).parent, known))


def _is_missing(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _is_real(directory: Path, known: dict[Path, bool]) -> bool:
    """Tell whether the nearest directory above that is there has anything in it."""
    if directory not in known:
        try:
            with os.scandir(directory) as listing:
                known[directory] = next(listing, None) is not None
        except (FileNotFoundError, NotADirectoryError):
            above = directory.parent
            known[directory] = above != directory and _is_real(above, known)
        except OSError:
            known[directory] = False
    return known[directory]

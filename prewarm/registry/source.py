"""The source code that a declaration brings along: what is in the directories of its ``path``.

Owns which files count as source. Does not look at installed packages: their versions are facts of
the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from prewarm.errors import ConfigError
from prewarm.registry.names import FILE_NAME, is_passed_over

#: Python, and what custom operators are built from or loaded as.
SOURCE = (".py", ".pyi", ".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp", ".so", ".ptx")

#: More source than this is a whole environment by mistake.
MAX_FILES = 20_000
MAX_FILE_BYTES = 256 << 20


def source_files(directory: Path, *, label: str) -> Iterator[tuple[str, bytes]]:
    """Yield the relative name and text of each source file below a directory.

    Directories of other checkpoints are left out: a model that lands beside changes nothing.

    Raises:
        ConfigError: there is too much, or a file cannot be read.

    """
    count = 0
    for path, below, files in os.walk(directory):
        here = Path(path)
        below[:] = sorted(
            name for name in below if not is_passed_over(name) and not _is_checkpoint(here / name)
        )
        for name in sorted(files):
            if not name.endswith(SOURCE) or name.startswith("."):
                continue
            count += 1
            if count > MAX_FILES:
                raise ConfigError(
                    f"{label}: [model] path: over {MAX_FILES:,} source files below {directory}; "
                    "name the directory of the model's own source"
                )
            yield (here / name).relative_to(directory).as_posix(), _read(here / name, label)


def _is_checkpoint(directory: Path) -> bool:
    return (directory / FILE_NAME).exists() or (directory / "config.json").exists()


def _read(path: Path, label: str) -> bytes:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{label}: [model] path: {path} is over {MAX_FILE_BYTES:,} bytes")
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{label}: [model] path: {path} cannot be read ({error.strerror}); mend or remove it"
        ) from error

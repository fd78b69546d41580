"""The part of ``facts.py`` that reads packages: where they are, which version, which source.

Run by its path, as ``facts.py`` is. Nothing is imported that is looked at.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys

#: What a package's code is, and how much of it is read: more is no package that somebody edits.
SOURCE = (".py", ".so", ".cpp", ".cu")
MAX_FILES = 5_000
MAX_BYTES = 256 << 20


def library_fact(name: str) -> str:
    """Tell a library's version; of one that is edited in place, its source too.

    A package in development keeps its version while its code changes (pytorch #187319 for what that
    does to a cached graph): one that is installed as editable, or only lies on ``PYTHONPATH``.
    """
    found = version(name)
    if found is None:
        return name + " missing"
    in_place = found == "unknown" or _is_editable(name)
    return name + " " + found + (" #" + _source_digest(name) if in_place else "")


def package_dir(name: str) -> str | None:
    """Find a package without importing it. Like ``torch.__file__``, links are not resolved."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return os.path.dirname(spec.origin) if spec is not None and spec.origin else None


def version_file(torch_dir: str | None) -> dict[str, str]:
    """Read torch/version.py's plain assignments: ``__version__``, ``cuda``, ``git_version``."""
    found: dict[str, str] = {}
    if torch_dir is None:
        return found
    try:
        with open(os.path.join(torch_dir, "version.py"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return found
    for line in lines:
        left, equals, right = line.partition("=")
        name, value = left.split(":")[0].strip(), right.strip()
        if equals and value[:1] in ("'", '"') and value[-1:] == value[:1]:
            found[name] = value[1:-1]
    return found


def version(name: str) -> str | None:
    """Tell the version of an installed distribution, "unknown" where only its code is found.

    The name of its ``.dist-info`` directory tells it; importlib.metadata takes 70 ms to import, so
    only what that does not find is left to it.
    """
    folder = _dist_info(name)
    if folder is not None:
        return os.path.basename(folder)[len(name) + 1 : -len(".dist-info")]
    if package_dir(name) is None:
        return None
    import importlib.metadata

    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _dist_info(name: str) -> str | None:
    wanted = name.lower().replace("-", "_") + "-"
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for found in names:
            if found.endswith(".dist-info") and found.lower().replace(".", "_").startswith(wanted):
                return os.path.join(folder or ".", found)
    return None


def _is_editable(name: str) -> bool:
    """Tell whether pip installed a link to a directory of source (PEP 610)."""
    folder = _dist_info(name)
    if folder is None:
        return False
    try:
        with open(os.path.join(folder, "direct_url.json"), encoding="utf-8") as file:
            return '"editable":true' in file.read().replace(" ", "")
    except OSError:
        return False


def _source_digest(name: str) -> str:
    """Digest the names and texts of a package's source files (12 hex digits)."""
    digest, left = hashlib.sha256(), MAX_BYTES
    for number, path in enumerate(_source_files(name)):
        if number == MAX_FILES or left <= 0:
            break
        try:
            with open(path, "rb") as file:
                text = file.read(left)
        except OSError:
            continue
        left -= len(text)
        digest.update(os.path.basename(path).encode() + b"\0" + text + b"\0")
    return digest.hexdigest()[:12]


def _source_files(name: str) -> list[str]:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return []
    if spec is None:
        return []
    places = list(spec.submodule_search_locations or ())
    if not places:
        return [spec.origin] if spec.origin else []
    found = []
    for place in places:
        for folder, below, names in os.walk(place):
            below[:] = sorted(one for one in below if one != "__pycache__" and one[:1] != ".")
            found += [os.path.join(folder, one) for one in sorted(names) if one.endswith(SOURCE)]
    return found

"""Interpreters beside the one that runs the tests: another Python, another torch, another user.

Each is a virtual environment made on the spot, with a ``.pth`` file that names the packages in use
here, so that nothing is installed. A test is skipped, with the reason, where the machine has no
such Python.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

#: Who owns nothing, and may only read what all may.
NOBODY = 65534

#: The system's Python, which every user can run; ours may lie in a closed home.
SYSTEM_PYTHON = shutil.which("python3", path=os.defpath)

#: Tells whether torch would be found and can be read, without the seconds of its import.
_FIND_TORCH = "import importlib.util; open(importlib.util.find_spec('torch').origin)"
_TELL = "import platform, sys; print(*sys.version_info[:2], platform.python_version())"


def another_python(root: Path) -> Path:
    """Make an environment of the system's Python, of our minor version, with our packages."""
    if SYSTEM_PYTHON is None:
        pytest.skip("the system has no python3")
    told = subprocess.run([SYSTEM_PYTHON, "-c", _TELL], capture_output=True, text=True, check=True)
    major, minor, _ = told.stdout.split()
    if (int(major), int(minor)) != sys.version_info[:2]:
        pytest.skip(f"the system's Python is {major}.{minor}, torch's libraries are for ours")
    return _make(root, SYSTEM_PYTHON)


def another_torch(root: Path, version: str) -> Path:
    """Make an environment of our Python whose torch is the one in use here, but for its version."""
    python = _make(root, sys.executable)
    site = _site_packages(python)
    real = _packages() / "torch"
    (site / "torch").mkdir()
    for entry in real.iterdir():
        if entry.name not in ("version.py", "__pycache__"):
            (site / "torch" / entry.name).symlink_to(entry)
    lines = (real / "version.py").read_text().splitlines()
    lines = [f"__version__ = '{version}'" if "__version__ =" in line else line for line in lines]
    (site / "torch" / "version.py").write_text("\n".join(lines) + "\n")
    about = site / f"torch-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    return python


def version_of(python: Path) -> str:
    """Return an interpreter's version, such as ``3.11.2``."""
    told = subprocess.run([python, "-c", _TELL], capture_output=True, text=True, check=True)
    return told.stdout.split()[2]


def require_nobody(python: Path) -> None:
    """Skip the test unless this process may become ``NOBODY``, and that user has torch there."""
    if os.geteuid() != 0:
        pytest.skip("only root may change users")
    try:
        done = as_nobody([str(python), "-c", _FIND_TORCH], home=Path("/"))
    except PermissionError as error:
        pytest.skip(f"another user cannot run {python}: {error}")
    if done.returncode != 0:
        pytest.skip(f"another user cannot use torch with {python}: {done.stderr[-300:]}")


def as_nobody(
    argv: list[str], *, home: Path, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command as a user that owns nothing but ``home``."""
    return subprocess.run(
        argv,
        user=NOBODY,
        group=NOBODY,
        extra_groups=(),
        env={"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home)} | (variables or {}),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _make(root: Path, base: str) -> Path:
    subprocess.run([base, "-m", "venv", "--without-pip", str(root)], check=True)
    python = root / "bin" / "python"
    (_site_packages(python) / "ours.pth").write_text(f"{_packages()}\n")
    return python


def _site_packages(python: Path) -> Path:
    [found] = (python.parents[1] / "lib").glob("python3*/site-packages")
    return found


def _packages() -> Path:
    """Return the directory that torch lies in."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]

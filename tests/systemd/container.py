"""A Debian tree that boots under a real systemd, with prewarm installed from its wheel.

Made once by debootstrap into a directory that ``PREWARM_TEST_TREE`` may name, to keep it between
runs; needs root, systemd-nspawn and debootstrap. A container is a copy of it, booted.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,python3-pip,g++"
BOOT_S = 90


def why_not() -> str | None:
    """Return why no container can boot here, None if one can."""
    if os.geteuid() != 0:
        return "systemd-nspawn --boot needs root"
    missing = [name for name in ("systemd-nspawn", "debootstrap") if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def make_tree(into: Path) -> None:
    """Make a bootable Debian tree with prewarm in /opt/prewarm and its unit in place."""
    make_room()
    if not (into / "etc" / "debian_version").exists():
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(into)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"debootstrap: {done.stdout.strip().splitlines()[-1:]}")
    wheels = into / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", str(wheels), str(ROOT)], check=True)
    (wheel,) = wheels.glob("torch_prewarm-*.whl")
    pins = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "download", "-d", str(wheels), "-c", pins, str(wheel)], check=True)
    inside(
        into,
        "python3 -m venv --clear /opt/prewarm && /opt/prewarm/bin/pip install --quiet --no-index"
        " --find-links /wheels torch-prewarm && (id prewarm >/dev/null 2>&1 || useradd --system"
        " --home-dir /var/lib/prewarm prewarm)",
    )
    shutil.rmtree(wheels)
    for unit in ("prewarm.service", "prewarm-hook@.service"):
        shutil.copy(ROOT / "systemd" / unit, into / "etc" / "systemd" / "system" / unit)
    shutil.copy(ROOT / "tests" / "build" / "fake_child.py", into / "opt" / "fake_child.py")


def make_room() -> None:
    """Give systemd-nspawn the tmpfs that it expects below /run, where nothing booted made one."""
    place = Path("/run/systemd/nspawn")
    place.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["mountpoint", "-q", str(place)], check=False).returncode != 0:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=True)


def inside(tree: Path, command: str) -> None:
    """Run a command in a tree that is not booted."""
    subprocess.run(
        [
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "-D",
            str(tree),
            "sh",
            "-ec",
            command,
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )


class Container:
    """A booted container; commands run in it by entering its namespaces."""

    def __init__(self, tree: Path, log: Path) -> None:
        self.tree = tree
        self._log = log
        self.boot()

    def boot(self) -> None:
        """Boot it and wait until systemd answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
                 "-D", str(self.tree), "--console=pipe"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.wait(self._is_up, BOOT_S)

    def run(self, command: str, *, check: bool = True) -> str:
        """Run a shell command inside and return what it printed."""
        done = subprocess.run(
            ["nsenter", "-t", str(self._init()), "-a", "sh", "-c", command],
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout.strip()

    def wait(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Wait for a condition."""
        ends_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < ends_s, self._log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def power_off(self) -> None:
        """End it as a power cut does: its first process dies, and with it all others at once."""
        os.kill(self._init(), signal.SIGKILL)
        self.process.wait(timeout=30)

    def shut_down(self) -> None:
        """Shut it down in order."""
        self.process.terminate()
        self.process.wait(timeout=60)

    def _init(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return int(children.split()[0])

    def _is_up(self) -> bool:
        try:
            state = self.run("systemctl is-system-running", check=False)
        except (OSError, ValueError, IndexError, subprocess.SubprocessError):
            return False
        return state in ("running", "degraded")

"""A Debian tree that boots under a real systemd, with prewarm installed from its wheel.

Made once by debootstrap into a directory that ``PREWARM_TEST_TREE`` may name, to keep it between
runs; needs root, systemd-nspawn and debootstrap. A container is a layer over it, booted.
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
#: Read here, since each test runs without prewarm's variables.
KEPT_TREE = os.environ.get("PREWARM_TEST_TREE", "")
SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,python3,python3-venv,python3-pip,g++"
BOOT_S = 90


def why_not() -> str | None:
    """Return why no container can boot here, None if one can."""
    if os.geteuid() != 0:
        return "systemd-nspawn --boot needs root"
    needed = ["systemd-nspawn"] if _is_debian(KEPT_TREE) else ["systemd-nspawn", "debootstrap"]
    missing = [name for name in needed if shutil.which(name) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def why_not_quickly() -> str | None:
    """Return why no container can boot here within half a minute, None if one can."""
    if not _is_debian(KEPT_TREE):
        return "PREWARM_TEST_TREE names no Debian tree that debootstrap made"
    return why_not()


def _is_debian(tree: str) -> bool:
    return tree != "" and (Path(tree) / "etc" / "debian_version").exists()


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
    # What the wheel needs is installed once, until that changes.
    needed = (ROOT / "constraints.txt").read_text() + (ROOT / "pyproject.toml").read_text()
    installed = into / "opt" / "installed"
    if installed.is_file() and installed.read_text() == needed:
        install = "/opt/prewarm/bin/pip install --quiet --no-deps --force-reinstall"
    else:
        pins = str(ROOT / "constraints.txt")
        subprocess.run([*pip, "download", "-d", str(wheels), "-c", pins, str(wheel)], check=True)
        install = "python3 -m venv --clear /opt/prewarm && /opt/prewarm/bin/pip install --quiet"
    inside(
        into,
        f"{install} --no-index --find-links /wheels torch-prewarm && for user in prewarm app; do"
        " id $user >/dev/null 2>&1 || useradd --system --home-dir /var/lib/$user $user; done",
    )
    installed.write_text(needed)
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
    """A layer over a tree that can be booted; commands run in it by entering its namespaces."""

    def __init__(self, tree: Path, place: Path) -> None:
        self.tree = place / "box"
        self._log = place / "console.log"
        layers = [place / name for name in ("upper", "work")]
        for directory in (self.tree, *layers):
            directory.mkdir()
        over = f"lowerdir={tree},upperdir={layers[0]},workdir={layers[1]}"
        argv = ["mount", "-t", "overlay", "overlay", "-o", over, str(self.tree)]
        self._layered = subprocess.run(argv, capture_output=True, check=False).returncode == 0
        if not self._layered:
            copy = ["cp", "-a", "--reflink=auto", f"{tree}/.", str(self.tree)]
            subprocess.run(copy, check=True)

    def remove(self) -> None:
        """Power it off and leave nothing of it."""
        self.power_off()
        if self._layered:
            subprocess.run(["umount", "-l", str(self.tree)], check=True)
        shutil.rmtree(self.tree.parent)

    def boot(self) -> None:
        """Boot it and wait until systemd answers."""
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
                 "--private-network", "-D", str(self.tree), "--console=pipe"],
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
            assert time.monotonic() < ends_s, self.told()
            time.sleep(0.1)

    def told(self) -> str:
        """Return what it told last, for whoever waits in vain."""
        return self._log.read_text(errors="replace")[-2000:]

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

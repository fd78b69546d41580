"""A container with prewarm at work on ``/models``, where the fake child stands for torch."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

from .container import Container

DECLARATION = """\
[model]
match = "**"
loader = "python"
factory = "fake:build"
device = "cpu"
interpreter = ["/opt/prewarm/bin/python", "/opt/fake_child.py"]
[compile]
dynamic = false
[[shapes]]
name = "rows"
inputs.x = { dtype = "float32", shape = ["batch", 4] }
sizes = { batch = [1, 2] }
"""
CONFIG = 'registry = "/models"\nsettle_s = 0.5\n'

#: The interpreter of every deployment here: under it the hook asks for facts.
INTERPRETER = "/opt/prewarm/bin/python /opt/fake_child.py"

_STATUS = """\
import sqlite3, sys
database = sqlite3.connect("file:/var/lib/prewarm/prewarm.db?mode=ro", uri=True)
row = database.execute("SELECT status FROM entries WHERE model = ?", sys.argv[1:]).fetchone()
print(row[0] if row else "")
"""


class Box(Container):
    """The container, its registry, its units and its journal."""

    def __init__(self, tree: Path, place: Path) -> None:
        super().__init__(tree, place)
        self._since_us = 0
        self.models = self.tree / "models"
        self.models.mkdir()
        (self.models / "prewarm.toml").write_text(DECLARATION)
        (self.tree / "etc/prewarm").mkdir()
        self.configure(CONFIG)
        (self.tree / "opt/status.py").write_text(_STATUS)

    def told(self) -> str:
        tail = self.run("journalctl -n 40 -o cat --no-pager", check=False)
        return f"{super().told()}\n{tail}"

    def begin(self) -> None:
        """Start the service for a test; what it logged before is not the test's."""
        self.run("systemctl enable --now prewarm")
        self._since_us = self.moment_us("prewarm", "InactiveExit")

    def configure(self, text: str) -> None:
        (self.tree / "etc/prewarm/config.toml").write_text(text)

    def clear(self) -> None:
        """Take away what a test put there: models, units, drop-ins, and what is under work."""
        self.run("systemctl stop prewarm 'server*' 'prewarm-hook@*'", check=False)
        for model in self.models.iterdir():
            if model.is_dir():
                shutil.rmtree(model)
        units = self.tree / "etc/systemd/system"
        for added in {*units.glob("server*"), *units.glob("*.service.d")}:
            shutil.rmtree(added) if added.is_dir() else added.unlink()
        self.configure(CONFIG)
        made = "/var/lib/prewarm/* /var/cache/prewarm/* /var/cache/server /run/prewarm-hook"
        self.run(f"rm -rf {made}")
        self.run("systemctl daemon-reload && systemctl reset-failed")

    def put(self, model: str, text: str = "weights", **behaviour: object) -> Path:
        directory = self.models / model
        directory.mkdir(parents=True)
        (directory / "behaviour.json").write_text(json.dumps(behaviour))
        (directory / "model.bin").write_text(text)
        return directory

    def marks(self) -> Path:
        """Make a directory in which children tell how far they are: the service may write there."""
        marks = self.tree / "var/lib/prewarm/marks"
        marks.mkdir()
        marks.chmod(0o777)
        return marks

    def status(self, model: str) -> str:
        return self.run(f"/opt/prewarm/bin/python /opt/status.py {shlex.quote(model)}", check=False)

    def unit(self, name: str, text: str) -> None:
        """Write a unit, or a drop-in of one (``NAME.d/FILE``)."""
        file = self.tree / "etc/systemd/system" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        self.run("systemctl daemon-reload")

    def property(self, unit: str, name: str) -> str:
        return self.run(f"systemctl show --value -p {name} {shlex.quote(unit)}")

    def moment_us(self, unit: str, name: str) -> int:
        """Return when something happened to a unit, on the clock that only goes forward."""
        return int(self.property(unit, f"{name}TimestampMonotonic"))

    def is_active(self, unit: str = "prewarm") -> bool:
        return self.property(unit, "ActiveState") == "active"

    def pid(self) -> int:
        return int(self.property("prewarm", "MainPID"))

    def children(self) -> list[int]:
        """Return the processes of the service beside its main one."""
        listed = self.run("grep -ls '/prewarm[.]service' /proc/[0-9]*/cgroup", check=False)
        pids = {int(Path(file).parent.name) for file in listed.splitlines()}
        return sorted(pids - {self.pid()})

    def journal(self, unit: str = "prewarm") -> str:
        return self.run(f"journalctl -u {shlex.quote(unit)} -o cat --no-pager")

    def events(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines of the service about an event since the test began."""
        listed = self.run("journalctl -u prewarm -o json --no-pager")
        found = []
        for line in listed.splitlines():
            record = json.loads(line)
            message = record.get("MESSAGE")
            if record.get("_COMM") == "systemd" or not isinstance(message, str):
                continue
            told = json.loads(message) if message.startswith("{") else {"event": "text"}
            if told["event"] == event and int(record["__MONOTONIC_TIMESTAMP"]) >= self._since_us:
                found.append(told)
        return found

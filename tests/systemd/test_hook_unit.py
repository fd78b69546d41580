"""``prewarm-hook@.service``: a deployment that requires it starts after it, from the warm tree."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .box import INTERPRETER, Box
from .container import why_not

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

#: A name that a unit's name cannot hold as it is.
MODEL = "gpt2-small/v1"
TELLING = """\
import json, os, pathlib, time
cache = pathlib.Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/nowhere"))
told = {
    "variables": dict(os.environ),
    "user": os.getuid(),
    "files": sorted(str(p.relative_to(cache)) for p in cache.rglob("*") if p.is_file()),
    "may_write": os.access(cache, os.W_OK),
}
place = pathlib.Path(os.environ["RUNTIME_DIRECTORY"])
(place / "told.json").write_text(json.dumps(told))
time.sleep(3600)
"""


class Deployment:
    """A server of another user than the builder's, and the hook of its model."""

    def __init__(self, box: Box, model: str, options: str = "") -> None:
        self.box = box
        self.instance = box.run(f"systemd-escape {model}")
        self.hook = f"prewarm-hook@{self.instance}.service"
        (box.tree / "opt/telling.py").write_text(TELLING)
        box.unit(
            f"{self.hook}.d/deployment.conf",
            f"[Service]\nUser=app\n"
            f"Environment=\"PREWARM_HOOK_OPTIONS=--interpreter '{INTERPRETER}' {options}\"\n",
        )
        box.unit(
            "server.service",
            f"[Unit]\nRequires={self.hook}\nAfter={self.hook}\n"
            "[Service]\nUser=app\nRestart=always\nRestartSec=0\nRuntimeDirectory=server\n"
            f"EnvironmentFile=-/run/prewarm-hook/{model}/env\n"
            "ExecStart=/opt/prewarm/bin/python /opt/telling.py\n",
        )

    def told(self) -> dict[str, Any] | None:
        """Return what the server that runs now has told of itself, None if it has not yet."""
        file = "/run/server/told.json"
        text = self.box.run(f"cat {file}", check=False)
        return json.loads(text) if text else None

    def hook_runs(self) -> int:
        return self.box.journal(self.hook).count("Finished prewarm-hook@")


def test_a_server_waits_for_the_hook_and_starts_from_the_warm_tree_as_its_own_user(
    box: Box,
) -> None:
    box.put(MODEL)
    box.wait(lambda: box.status(MODEL) == "warm")
    deployment = Deployment(box, MODEL)
    hook = deployment.hook
    # Held until told, so that a server that does not wait would be seen.
    hold = "ExecStartPre=sh -c 'until test -e /run/go; do sleep 0.1; done'"
    box.unit(f"{hook}.d/held.conf", f"[Service]\n{hold}\n")
    box.run("rm -f /run/go; systemctl start --no-block server")
    box.wait(lambda: box.property(hook, "ActiveState") == "activating")
    assert box.property("server", "ActiveState") == "inactive"
    box.run("touch /run/go")
    box.wait(lambda: deployment.told() is not None)
    hook_ended_us = box.moment_us(hook, "ExecMainExit")
    assert 0 < hook_ended_us <= box.moment_us("server", "ExecMainStart")

    told = deployment.told()
    assert told is not None
    tree = told["variables"]["TORCHINDUCTOR_CACHE_DIR"]
    assert tree.startswith(f"/run/prewarm-hook/{MODEL}/warm/")
    assert "fxgraph/g-fxgraph" in told["files"]
    assert told["may_write"]
    assert told["user"] == int(box.run("id -u app"))
    assert told["variables"]["PYTHONPATH"].startswith(f"/run/prewarm-hook/{MODEL}/warm/")


def test_each_start_of_the_server_runs_the_hook_again_also_after_a_crash(box: Box) -> None:
    box.put(MODEL)
    box.wait(lambda: box.status(MODEL) == "warm")
    deployment = Deployment(box, MODEL)
    runs = deployment.hook_runs()
    box.run("systemctl start server")
    assert deployment.hook_runs() == runs + 1
    assert box.is_active("server")  # though the hook is over
    box.run("systemctl stop server && rm -r /run/prewarm-hook/*/*/warm")
    box.run("systemctl start server")
    assert deployment.hook_runs() == runs + 2
    box.wait(lambda: (deployment.told() or {}).get("files") not in (None, []))
    box.run("systemctl kill --signal=KILL server")
    box.wait(lambda: deployment.hook_runs() == runs + 3)
    box.wait(lambda: box.is_active("server"))


def test_a_miss_does_not_hold_the_server_back_unless_it_is_told_to(box: Box) -> None:
    deployment = Deployment(box, "absent")
    box.run("systemctl start server")
    box.wait(lambda: deployment.told() is not None)
    told = deployment.told()
    assert told is not None
    assert "TORCHINDUCTOR_CACHE_DIR" not in told["variables"]
    assert "starting cold" in box.journal(deployment.hook)
    box.run("systemctl stop server")
    Deployment(box, "absent", "--on-miss fail")
    assert "dependency job for server.service failed" in box.run(
        "systemctl start server 2>&1", check=False
    )
    assert not box.is_active("server")

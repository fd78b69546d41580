"""prewarm as a service under a real systemd: what arrives becomes warm, whatever is killed.

The first test is the short form, for every run on a machine that has a tree at hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from .box import INTERPRETER, Box
from .container import ROOT, why_not, why_not_quickly

quick = pytest.mark.skipif(why_not_quickly() is not None, reason=str(why_not_quickly()))
able = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SERVER = """\
[Service]
User=app
Type=oneshot
ExecStart=/bin/sh -c 'test -d "$TORCHINDUCTOR_CACHE_DIR/fxgraph" && echo started warm as $(id -un)'
"""
DROP_IN = (
    (ROOT / "systemd/deployment.conf")
    .read_text()
    .replace("MODEL", "m")
    .replace("my-server", "server")
    .replace("/srv/app/.venv/bin/python", f"'{INTERPRETER}' --on-miss fail")
)


@quick
def test_a_checkpoint_that_is_copied_in_slowly_becomes_warm_and_a_deployment_starts_from_it(
    box: Box,
) -> None:
    assert box.is_active()
    box.configure('registry = "/models"\nsettle_s = 2.0\n')
    box.run("systemctl reload prewarm")
    box.wait(lambda: bool(box.events("reloaded")))
    directory = box.put("m", "first half")
    box.wait(lambda: box.status("m") == "settling")
    with (directory / "model.bin").open("a") as file:
        file.write(" second half")
    box.wait(lambda: box.status("m") == "warm")
    box.unit("server.service", SERVER)
    box.unit("server.service.d/prewarm.conf", DROP_IN)
    box.run("systemctl start server")
    assert "started warm as app" in box.journal("server")


@able
@pytest.mark.nightly
def test_it_survives_kill_9_a_restart_and_a_power_cut(box: Box) -> None:
    marks = box.marks()
    reached = marks / "compile-begun.reached"
    box.put("m", marks="/var/lib/prewarm/marks", hold=["compile-begun"])
    _wait_and_forget(box, reached)
    box.run("systemctl kill --kill-who=main --signal=KILL prewarm")
    _wait_and_forget(box, reached)  # restarted by itself, and at it again
    box.run("systemctl restart prewarm")
    _wait_and_forget(box, reached)
    box.power_off()
    box.boot()
    box.wait(reached.exists)
    (marks / "compile-begun.go").touch()
    box.wait(lambda: box.status("m") == "warm")
    assert box.is_active()


@able
@pytest.mark.nightly
def test_after_kill_9_of_a_child_the_same_daemon_builds_it_again_by_itself(box: Box) -> None:
    marks = box.marks()
    box.put("m", marks="/var/lib/prewarm/marks", hold=["compile-begun"])
    box.wait((marks / "compile-begun.reached").exists)
    daemon = box.pid()
    (child,) = box.children()
    (marks / "compile-begun.go").touch()
    box.run(f"kill -KILL {child}")
    box.wait(lambda: box.status("m") in ("warm", "partial", "failed"))
    assert box.status("m") == "warm"
    assert box.pid() == daemon
    assert box.property("prewarm", "NRestarts") == "0"


@able
@pytest.mark.nightly
def test_a_reboot_in_order_brings_it_back_and_what_was_warm_stays_warm(box: Box) -> None:
    box.put("m")
    box.wait(lambda: box.status("m") == "warm")
    box.shut_down()
    box.boot()
    box.wait(box.is_active)
    assert box.status("m") == "warm"
    box.put("n", "other weights")
    box.wait(lambda: box.status("n") == "warm")


def _wait_and_forget(box: Box, reached: Path) -> None:
    box.wait(reached.exists)
    reached.unlink()

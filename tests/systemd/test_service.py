"""prewarm as a service under a real systemd, in a container that boots."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from .container import Container, make_tree, why_not

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

DECLARATION = """\
[model]
match = "*"
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


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("PREWARM_TEST_TREE")
    made = Path(kept) if kept else tmp_path_factory.mktemp("tree")
    make_tree(made)
    return made


@pytest.fixture
def box(tree: Path, tmp_path: Path) -> Iterator[Container]:
    copy = tmp_path / "box"
    subprocess.run(["cp", "-a", "--reflink=auto", str(tree), str(copy)], check=True)
    (copy / "models").mkdir()
    (copy / "models" / "prewarm.toml").write_text(DECLARATION)
    (copy / "etc" / "prewarm").mkdir()
    (copy / "etc" / "prewarm" / "config.toml").write_text('registry = "/models"\nsettle_s = 2.0\n')
    container = Container(copy, tmp_path / "console.log")
    yield container
    container.power_off()
    shutil.rmtree(copy, ignore_errors=True)


def status(box: Container, model: str) -> str:
    code = (
        "import sqlite3, sys\n"
        "c = sqlite3.connect('file:/var/lib/prewarm/prewarm.db?mode=ro', uri=True)\n"
        "r = c.execute('SELECT status FROM entries WHERE model = ?', sys.argv[1:]).fetchone()\n"
        "print(r[0] if r else '')"
    )
    return box.run(f"/opt/prewarm/bin/python -c {shq(code)} {model}", check=False)


def shq(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def is_active(box: Container) -> bool:
    return box.run("systemctl is-active prewarm", check=False) == "active"


def put(box: Container, model: str, text: str = "weights", **behaviour: object) -> Path:
    directory = box.tree / "models" / model
    directory.mkdir()
    (directory / "behaviour.json").write_text(json.dumps(behaviour))
    (directory / "model.bin").write_text(text)
    return directory


def test_a_checkpoint_that_is_copied_in_slowly_becomes_warm_and_a_deployment_starts_from_it(
    box: Container,
) -> None:
    box.run("systemctl enable --now prewarm")
    assert is_active(box)
    directory = put(box, "m", "first half")
    box.wait(lambda: status(box, "m") == "settling")
    with (directory / "model.bin").open("a") as file:
        file.write(" second half")
    box.wait(lambda: status(box, "m") == "warm")
    unit = box.tree / "etc/systemd/system/server.service"
    hook = (
        "/opt/prewarm/bin/prewarm hook m --manifest /var/cache/prewarm --into /run/server/warm"
        " --env-file /run/server/env --interpreter '/opt/prewarm/bin/python /opt/fake_child.py'"
        " --on-miss fail"
    )
    unit.write_text(
        "[Service]\nUser=prewarm\nType=oneshot\nRuntimeDirectory=server\nRuntimeDirectoryPreserve=yes\n"
        f"EnvironmentFile=-/run/server/env\nExecStartPre={hook}\n"
        "ExecStart=/bin/sh -c 'test -d \"$TORCHINDUCTOR_CACHE_DIR\" && echo started warm'\n"
    )
    box.run("systemctl daemon-reload && systemctl start server")
    assert "started warm" in box.run("journalctl -u server -o cat --no-pager")


def test_it_survives_kill_9_of_itself_and_of_a_child_a_restart_and_a_power_cut(
    box: Container,
) -> None:
    box.run("systemctl enable --now prewarm")
    marks = box.tree / "var/lib/prewarm/marks"  # the service may write to nothing else
    marks.mkdir()
    marks.chmod(0o777)
    put(box, "m", marks="/var/lib/prewarm/marks", hold=["compile-begun"])
    reached = marks / "compile-begun.reached"

    box.wait(reached.exists)
    reached.unlink()
    box.run("systemctl kill --kill-who=main --signal=KILL prewarm")
    box.wait(reached.exists)  # restarted by itself, and at it again
    reached.unlink()
    box.run("systemctl restart prewarm")
    box.wait(reached.exists)
    reached.unlink()
    box.power_off()
    box.boot()
    box.wait(reached.exists)
    (marks / "compile-begun.go").touch()
    box.wait(lambda: status(box, "m") == "warm")
    assert is_active(box)

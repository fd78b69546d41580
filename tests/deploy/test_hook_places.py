"""Hooks where little is there: no account, no home, a read-only root; and fifty at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prewarm.present import TORCHSIDE
from prewarm.store.signing import load_or_create_key

from ..serve.served import Served
from .conftest import FILES, Publisher
from .hostile import Call, hostile

FIFTY = Path(__file__).with_name("fifty.py")
NO_ACCOUNT = 54321


@pytest.fixture
def served(open_directory: Path) -> Iterator[Served]:
    with Served(open_directory / "builder").running() as served:
        yield served


@pytest.fixture
def publish(served: Served, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(served.root, present_facts)


def words(served: Served, into: Path) -> list[str]:
    return [
        "hook", "minilm/v1", "--manifest", f"http://127.0.0.1:{served.port}", "--into", str(into),
        "--env-file", str(into / "server.env"), "--on-miss", "fail",
        "--trust", str(served.state_dir / "signing.pub"),
    ]  # fmt: skip


def homeless() -> dict[str, str]:
    kept = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


def check_filled(into: Path, sha256: str) -> None:
    tree = into / sha256[:32]
    assert {name: (tree / name).read_bytes() for name in FILES} == FILES
    for path in (tree, *tree.rglob("*"), into / "env", into / "env.json", into / "server.env"):
        wanted = 0o755 if path.is_dir() else 0o644
        assert path.stat().st_mode & 0o777 == wanted, path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody without an account")
@pytest.mark.skipif(not TORCHSIDE.stat().st_mode & 0o004, reason="only root can read the checkout")
def test_without_an_account_and_a_home(
    publish: Publisher, served: Served, open_directory: Path
) -> None:
    info = publish()
    into = open_directory / "D"
    into.mkdir()
    os.chown(into, NO_ACCOUNT, NO_ACCOUNT)
    # Once as root first, since another user may not reach this Python's files: then all of them
    # are imported.
    script = (
        "import os, sys\n"
        "from prewarm.cli.main import main\n"
        "first = [word.replace('/D', '/E') for word in sys.argv[1:]]\n"
        "assert main(first) == 0\n"
        f"os.setgroups([])\nos.setresgid(*[{NO_ACCOUNT}] * 3)\nos.setresuid(*[{NO_ACCOUNT}] * 3)\n"
        "os.umask(0o777)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, *words(served, into)],
        env=homeless(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    check_filled(into, info.sha256)


def test_on_a_read_only_root_the_directory_is_all_that_is_written(
    publish: Publisher, served: Served, open_directory: Path
) -> None:
    info = publish()
    into = open_directory / "D"
    into.mkdir()
    script = (
        'mount --make-rprivate / && mount --bind "$0" "$0" && mount -o remount,bind,ro / && '
        '! touch "$0/../there" 2>/dev/null && exec "$@"'
    )
    argv = [sys.executable, "-m", "prewarm.cli", *words(served, into)]

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(into), *argv],
        env=homeless() | {"HOME": str(open_directory / "home")},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip

    if "prewarm" not in done.stderr and done.returncode and not (into / ".lock").exists():
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    check_filled(into, info.sha256)
    assert {path.name for path in open_directory.iterdir()} == {"builder", "D"}


@pytest.mark.parametrize("with_home", [True, False])
def test_fifty_deployments_at_once_are_all_warm_by_one_download(
    publish: Publisher, served: Served, open_directory: Path, with_home: bool
) -> None:
    count = 50 if with_home else 3
    info = publish()
    key = load_or_create_key(served.state_dir).public
    bundle = next(served.cache_dir.rglob("*.zst")).read_bytes()
    manifests = served.get("/v1/manifest").body

    def handle(call: Call) -> None:
        call.answer(manifests if call.path == "/v1/manifest" else bundle)

    environ = homeless()
    if with_home:
        environ["XDG_CACHE_HOME"] = str(open_directory / "home")
    with hostile(handle) as server:
        done = subprocess.run(
            [sys.executable, str(FIFTY), str(count), server.url, key, str(open_directory)],
            env=environ, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        fetched = [call for call in server.calls if call.path != "/v1/manifest"]

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [0] * count
    assert len(fetched) == (1 if with_home else count)
    for number in range(count):
        tree = open_directory / f"D{number}" / info.sha256[:32]
        assert {name: (tree / name).read_bytes() for name in FILES} == FILES

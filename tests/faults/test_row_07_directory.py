"""Row 7, a directory that is not usable: the private copy is, or the hook says that it is not.

Upstream: triton #518, pytorch #140765. The deployment's user is nobody, who owns a home alone.
"""

from __future__ import annotations

import contextlib
import io
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import prewarm.cli.hook
import prewarm.store.bundle
from prewarm.cli.main import main

from ..deploy.conftest import Publisher, open_directory, present_facts
from ..shop import open_shop

__all__ = ["open_directory", "present_facts"]

# Imported before the user changes, who may not reach this Python's files.
assert prewarm.cli.hook and prewarm.store.bundle and pkgutil

NOBODY = 65534

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root makes what others cannot use")

#: A start with torch alone; it prints what the first request raised.
ALONE = """\
import torch
try:
    torch.compile(torch.nn.ReLU())(torch.ones(4))
except Exception as error:
    print(str(error).strip().splitlines()[0])
"""


@pytest.fixture
def publish(open_directory: Path, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(open_directory, present_facts)


@pytest.fixture
def home(open_directory: Path) -> Path:
    """The one directory that nobody may write."""
    path = open_directory / "home"
    path.mkdir()
    os.chown(path, NOBODY, NOBODY)
    return path


def as_nobody(work: Callable[[], int], *, umask: int = 0o022) -> tuple[int, str]:
    """Run something in a fork as nobody; return its answer and what it printed on stderr."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 99
        try:
            with os.fdopen(writing, "w") as sys.stderr:
                os.umask(umask)
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, 0)
                os.setresuid(NOBODY, NOBODY, 0)
                code = work()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def hook(cache_dir: Path, into: Path | None, *words: str, model: str = "minilm/v1") -> int:
    place = ("--into", str(into)) if into is not None else ()
    with contextlib.redirect_stdout(io.StringIO()):
        return main(["hook", model, "--manifest", str(cache_dir), *place, *words])


def told_by(run: Callable[..., tuple[int, str]], *, code: int = 1) -> str:
    """Return the one line by which a hook tells why it cannot; a cold start goes on."""
    failed, line = run("--on-miss", "fail")
    assert (failed, line.count("\n")) == (code, 1), line
    assert line.startswith("prewarm: error: ")
    assert "internal error" not in line
    cold, warning = run()
    assert cold == 0
    assert warning == line.replace("error", "warning", 1).rstrip("\n") + "; starting cold\n"
    return line.removeprefix("prewarm: error: ")


@contextlib.contextmanager
def mounted(directory: Path, *how: str) -> Iterator[None]:
    directory.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", *how, str(directory)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        if "--bind" in how:
            subprocess.run(["mount", "-o", "remount,bind,ro", str(directory)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def lock_all(tree: Path) -> int:
    """Do what torch does at each start, also on a hit; return how many files could be opened."""
    locks = tree / "inductor" / "locks"
    locks.mkdir(exist_ok=True)
    for name in ("graph.lock", "kernel.lock"):
        os.close(os.open(locks / name, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
    return sum(path.open("rb").close() is None for path in tree.rglob("*") if path.is_file())


# -- the private copy is usable


def test_built_and_hooked_under_umask_077_it_is_readable_and_writable(
    open_directory: Path, home: Path, fault_row
) -> None:
    shop = open_shop(open_directory)
    shop.model("m1")
    before = os.umask(0o077)
    try:
        assert shop.scan().all_warm
    finally:
        os.umask(before)
    into = home / "D"

    code, told = as_nobody(
        lambda: hook(shop.settings.cache_dir, into, "--on-miss", "fail", model="m1"), umask=0o077
    )

    assert (code, told) == (0, "")
    [tree] = [path.parent for path in into.glob("*/inductor")]
    assert as_nobody(lambda: lock_all(tree), umask=0o077)[0] > 0
    code, told = as_nobody(
        lambda: hook(shop.settings.cache_dir, into, "--on-miss", "fail", model="m1"), umask=0o077
    )
    assert (code, told) == (0, "")
    fault_row(
        row=7,
        case="umask 077 at the build and at the hook",
        alone=None,
        said="warm from a private copy that its user can read and write",
    )


def test_a_cache_directory_that_it_can_only_read_is_enough(
    publish: Publisher, home: Path, fault_row
) -> None:
    info = publish()
    tree = home / "D" / info.sha256[:32]
    with mounted(publish.cache_dir, "--bind", str(publish.cache_dir)):
        code, told = as_nobody(lambda: hook(publish.cache_dir, home / "D", "--on-miss", "fail"))
        assert (code, told) == (0, "")
        assert as_nobody(lambda: lock_all(tree))[0] > 0

    fault_row(
        row=7,
        case="a shared directory that can only be read",
        alone=torch_alone(publish.root / "shared"),
        said="warm from a private copy that its user can read and write",
    )


def torch_alone(cache: Path) -> str:
    """Return what the first request of a server raises whose cache directory is read-only."""
    with mounted(cache, "-t", "tmpfs", "-o", "ro", "tmpfs"):
        done = subprocess.run(
            [sys.executable, "-c", ALONE],
            env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=True,
        )
    assert "Read-only file system" in done.stdout
    return f"its first request raises {done.stdout.strip()}".replace(str(cache), "DIR")


# -- it is not, and the hook says so


@pytest.mark.parametrize(
    ("case", "owned", "path"),
    [
        ("the whole directory is another user's", ".", "inductor"),
        ("locks that a server left as another user", "inductor/locks", "inductor/locks"),
        ("one lock of another user", "inductor/locks/graph.lock", "inductor/locks/graph.lock"),
        ("a part that another user put back", "inductor/aa", "inductor/aa"),
    ],
)
def test_what_belongs_to_another_user_is_told(
    publish: Publisher, home: Path, fault_row, case: str, owned: str, path: str
) -> None:
    tree = home / "D" / publish().sha256[:32]
    assert as_nobody(lambda: hook(publish.cache_dir, home / "D", "--on-miss", "fail"))[0] == 0
    as_nobody(lambda: lock_all(tree))
    found = tree / owned
    for changed in (found, *found.rglob("*")):
        os.chown(changed, 0, 0)

    line = told_by(lambda *words: as_nobody(lambda: hook(publish.cache_dir, home / "D", *words)))

    assert line == (
        f"{tree / path}: cannot be written as user {NOBODY} (it belongs to user 0), and torch "
        "writes locks there even on a hit; run the hook as the deployment's user or choose "
        "--into\n"
    )
    assert as_nobody(lambda: lock_all(tree))[0] == 99 or path == "inductor/aa"
    fault_row(row=7, case=case, alone=None, said=line.replace(str(tree), "DIR"))


def test_a_directory_that_became_read_only_is_told(
    publish: Publisher, home: Path, fault_row
) -> None:
    into = home / "D"
    assert hook(publish.cache_dir, into) == 0  # nothing is published yet: a cold start
    tree = into / publish().sha256[:32]
    assert as_nobody(lambda: hook(publish.cache_dir, home / "D", "--on-miss", "fail"))[0] == 0
    with mounted(into, "--bind", str(into)):
        line = told_by(lambda *words: as_nobody(lambda: hook(publish.cache_dir, into, *words)))
        assert line.startswith(f"{tree} lies on a file system that is mounted read-only, and torch")
    fault_row(row=7, case="a read-only tree", alone=None, said=line.replace(str(into), "DIR"))


def test_a_place_that_cannot_be_filled_is_told(publish: Publisher, home: Path, fault_row) -> None:
    publish()
    closed = publish.root / "closed"
    closed.mkdir()
    line = told_by(lambda *words: as_nobody(lambda: hook(publish.cache_dir, closed / "D", *words)))
    assert line.startswith(f"{closed / 'D'}: cannot be written as user {NOBODY} (Permission denied")
    with mounted(home / "D", "-t", "tmpfs", "-o", "ro", "tmpfs"):
        line = told_by(
            lambda *words: as_nobody(lambda: hook(publish.cache_dir, home / "D", *words))
        )
    assert str(home / "D") in line
    assert "Read-only file system" in line
    fault_row(
        row=7, case="a read-only place to fill", alone=None, said=line.replace(str(home), "HOME")
    )


def test_a_user_without_a_home_is_told_where_it_would_write(
    publish: Publisher, monkeypatch: pytest.MonkeyPatch, fault_row
) -> None:
    publish()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/nonexistent")
    line = told_by(lambda *words: as_nobody(lambda: hook(publish.cache_dir, None, *words)))
    assert f"cannot be written as user {NOBODY}" in line
    assert "give this user write access there or choose another directory" in line
    fault_row(row=7, case="a user without a home, no --into", alone=None, said=line)


def test_a_file_system_without_execution_is_told(publish: Publisher, home: Path, fault_row) -> None:
    publish()
    with mounted(home / "D", "-t", "tmpfs", "-o", f"noexec,uid={NOBODY}", "tmpfs"):
        line = told_by(
            lambda *words: as_nobody(lambda: hook(publish.cache_dir, home / "D", *words))
        )
    assert "is mounted noexec, so compiled code cannot be loaded from it" in line
    assert "--into" in line
    fault_row(row=7, case="a noexec mount", alone=None, said=line.replace(str(home), "HOME"))


def test_a_full_disk_is_told_and_what_was_there_stays(
    publish: Publisher, home: Path, fault_row
) -> None:
    into = home / "D"
    first = publish()
    with mounted(into, "-t", "tmpfs", "-o", f"size=1m,uid={NOBODY}", "tmpfs"):
        run = lambda *words: as_nobody(lambda: hook(publish.cache_dir, into, *words))  # noqa: E731
        assert run("--on-miss", "fail") == (0, "")
        publish("large", {f"inductor/{n}/f": os.urandom(9000) for n in range(120)})
        line = told_by(
            lambda *words: as_nobody(lambda: hook(publish.cache_dir, into, *words, model="large"))
        )
        assert "are needed and" in line
        assert "are free; free some space there or choose another directory with --into" in line
        assert not list(into.glob(".filling-*"))
        assert run("--on-miss", "fail") == (0, "")
        assert (into / first.sha256[:32] / "inductor" / "aa" / "one.py").is_file()
    fault_row(row=7, case="a full disk", alone=None, said=line.replace(str(home), "HOME"))

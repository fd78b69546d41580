"""Row 15, database and unit: state on a local disk only, readers need no rights, hooks no database.

Upstream: codex #30957, redpanda #10944. READY within seconds is shown in ``tests/test_daemon.py``.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from prewarm.store import connection
from prewarm.store.database import DATABASE_NAME

from ..shop import Shop, open_shop

NOBODY = 65534


def test_a_state_directory_on_a_network_file_system_is_refused(
    shop, fault_row, monkeypatch
) -> None:
    monkeypatch.setattr(connection, "network_file_system", lambda path: "nfs4")
    shop.model("m")
    code, line = shop.prewarm("scan", "--registry", str(shop.settings.registry))
    assert code == 1
    assert "(nfs4)" in line
    assert "PREWARM_STATE_DIR" in line
    assert line.count("\n") == 1
    assert not (shop.settings.state_dir / DATABASE_NAME).exists()
    fault_row(row=15, case="a state_dir on NFS", alone=None, said=line)


@pytest.fixture
def open_place() -> Iterator[Shop]:
    """A shop that every user can reach; pytest's own directories are closed to others."""
    root = Path(tempfile.mkdtemp(prefix="prewarm-test-"))
    root.chmod(0o755)
    yield open_shop(root)
    shutil.rmtree(root)


def test_a_reader_without_rights_sees_what_a_scan_is_writing(
    open_place: Shop, fault_row, wait_until
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    shop = open_place
    marks = shop.root / "marks"
    marks.mkdir()
    shop.model("m", marks=str(marks), hold=["compile-begun"])
    scan = threading.Thread(target=shop.scan)
    scan.start()
    try:
        wait_until((marks / "compile-begun.reached").exists)
        assert shop.prewarm("status")[0] == 0  # and what it imports is there for the other user
        os.seteuid(NOBODY)
        try:
            code, line = shop.prewarm("status")
            printed = shop.printed
            with pytest.raises(OSError, match="denied"):
                (shop.settings.state_dir / "mine").touch()
        finally:
            os.seteuid(0)
    finally:
        (marks / "compile-begun.go").touch()
        scan.join(60)
    assert (code, line) == (0, "")
    [told] = [row for row in printed.splitlines() if row.split()[:1] == ["m"]]
    assert "building" in told
    assert shop.builds("m") == ["compiled"]
    fault_row(row=15, case="`status` without write access, during a build", alone=None, said=told)


def no_database(shop: Shop) -> None:
    (shop.settings.state_dir / DATABASE_NAME).unlink()


def garbage(shop: Shop) -> None:
    (shop.settings.state_dir / DATABASE_NAME).write_bytes(b"no database" * 1000)


@pytest.mark.parametrize(
    ("case", "harm"),
    [
        ("a database that is gone, and a deployment", no_database),
        ("a damaged database, and a deployment", garbage),
    ],
)
def test_a_deployment_never_opens_the_database(
    shop, fault_row, monkeypatch, case: str, harm
) -> None:
    shop.model("m")
    shop.scan()
    harm(shop)

    def refused(*arguments: object, **keywords: object) -> None:
        raise AssertionError("a deployment opens a database")

    monkeypatch.setattr(sqlite3, "connect", refused)
    code, line = shop.hook("m", "--on-miss", "fail", "--env-file", str(shop.root / "env"))
    assert (code, line) == (0, "")
    fault_row(row=15, case=case, alone=None, said=shop.printed.splitlines()[0])

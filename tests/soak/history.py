"""The history of a service that has run for long: tables full to their bounds, and their logs."""

from __future__ import annotations

import json
import shutil
import time
from typing import Any

from prewarm.build.house import MOST_RETIRED
from prewarm.store.bundles import MOST_QUARANTINED
from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.logs import log_of
from prewarm.store.reports import MOST_OF_A_MODEL, MOST_REPORTS
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

from .registry import weights

#: How a checkpoint's life went: built, changed twice, gone.
_LIFE = (
    *(Status.BUILDING, Status.PROVING, Status.WARM, Status.STALE, Status.QUEUED) * 2,
    Status.BUILDING, Status.PROVING, Status.WARM, Status.RETIRED,
)  # fmt: skip


def long_history(shop: Any) -> None:
    """Fill the tables with what one real checkpoint left, under other names."""
    model = shop.root / "registry" / "first"
    model.mkdir()
    (model / "config.json").write_text('{"model_type": "bert"}')
    (model / "model.safetensors").write_bytes(weights(0))
    (model / "behaviour.json").write_text(json.dumps({"graph": "first"}))
    assert shop.scan().all_warm
    entry = shop.entry("first")
    shutil.rmtree(model)
    began_s = time.time() - 86_400
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        database.retire_missing([], at=timestamp(began_s))
        with database.transaction():
            for number in range(MOST_RETIRED):
                live(shop, database, entry, f"former-{number:04}/v1", began_s + number)
        set_aside(database, entry, began_s)
        report(database, entry, began_s)


def live(shop: Any, database: Database, entry: Entry, name: str, at_s: float) -> None:
    """Let a checkpoint come, be built twice and go, as ``entry`` was."""
    at = timestamp(at_s)
    database.see_checkpoint(name, f"/{name}", digest=None, architecture=None, at=at)
    made = database.put_entry(name, entry.environment_id, at=at)
    for status in _LIFE:
        database.move(made.id, status, at=at, reason="as it was then", record=entry.record)
    for build in range(2):
        began = timestamp(at_s + build)
        log = log_of(shop.settings.state_dir / "logs", name, entry.environment_id, began)
        log.touch()
        database.execute(
            """
            INSERT INTO builds (entry_id, build_key, started_at, ended_at, outcome, mode, log)
            VALUES (:id, :key, :at, :at, 'compiled', 'max-autotune', :log)
            """,
            {"id": made.id, "key": entry.build_key, "at": began, "log": str(log)},
        )


def set_aside(database: Database, entry: Entry, began_s: float) -> None:
    """Quarantine as many bundles as are remembered."""
    for number in range(MOST_QUARANTINED):
        at, sha256 = timestamp(began_s + number), f"{number:064x}"
        database.add_bundle(
            sha256, build_key=f"{number:064x}", architecture=sha256,
            environment_id=entry.environment_id, size_bytes=1, unpacked_bytes=1, files=1,
            record=entry.record, at=at,
        )  # fmt: skip
        database.quarantine(sha256, reason="as it was then", at=at)


def report(database: Database, entry: Entry, began_s: float) -> None:
    for number in range(MOST_REPORTS):
        database.add_report(
            f"former-{number // MOST_OF_A_MODEL}/v1", entry.environment_id, bundle_sha256=None,
            at=timestamp(began_s + number), uid=None, first_answer_s=1.0, compiled=False,
            report={"graphs_compiled": 0, "graphs": []},
        )  # fmt: skip

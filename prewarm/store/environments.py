"""The tables ``environments`` and ``probes``: facts of machines, and what a probe child said.

Owns their SQL. A probe is kept under a fingerprint (packages, driver, machine) until that changes;
several fingerprints may lead to one environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from prewarm.store.connection import Connection, to_json


class Environments(Connection):
    """Reads and writes the tables ``environments`` and ``probes``."""

    def put_environment(
        self,
        environment_id: str,
        *,
        facts: Mapping[str, str | None],
        probe: Mapping[str, object],
        fingerprint: str,
        at: str,
    ) -> None:
        """Record an environment, and the probe that found it under its fingerprint."""
        with self.transaction():
            self.execute(
                """
                INSERT INTO environments (id, facts, seen_at) VALUES (:id, :facts, :at)
                ON CONFLICT (id) DO UPDATE SET facts = excluded.facts, seen_at = excluded.seen_at
                """,
                {"id": environment_id, "facts": to_json(dict(facts)), "at": at},
            )
            self.execute(
                """
                INSERT INTO probes (fingerprint, environment_id, probe, at)
                VALUES (:fingerprint, :id, :probe, :at)
                ON CONFLICT (fingerprint) DO UPDATE SET
                  environment_id = excluded.environment_id, probe = excluded.probe, at = excluded.at
                """,
                {
                    "fingerprint": fingerprint,
                    "id": environment_id,
                    "probe": to_json(dict(probe)),
                    "at": at,
                },
            )

    def probe_for(self, fingerprint: str) -> dict[str, Any] | None:
        """Return what the probe said under this fingerprint, if it ran."""
        rows = self.query(
            "SELECT probe FROM probes WHERE fingerprint = :fingerprint",
            {"fingerprint": fingerprint},
        )
        if not rows:
            return None
        probe: dict[str, Any] = json.loads(rows[0]["probe"])
        return probe

    def environments(self) -> dict[str, dict[str, str | None]]:
        """Return the facts of every environment seen, by its id."""
        rows = self.query("SELECT id, facts FROM environments ORDER BY id")
        return {row["id"]: json.loads(row["facts"]) for row in rows}

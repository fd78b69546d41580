"""The builder's figures for Prometheus (README, "Figures").

Owns their names, in a registry of its own. What the database knows is counted when somebody looks;
the rest is counted as it happens, from any thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from prewarm.store.database import Database
from prewarm.store.quarantine import read_quarantine
from prewarm.store.status import Status
from prewarm.store.timestamp import timestamp

_COMPILED = {True: "yes", False: "no", None: "unknown"}


class Metrics:
    """All figures of one builder."""

    def __init__(self, database: Path, *, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s
        self._scan_ended_s: float | None = None
        self.registry = CollectorRegistry(auto_describe=False)
        self._requests = Counter(
            "prewarm_http_requests", "HTTP requests answered", ["route", "status"],
            registry=self.registry,
        )  # fmt: skip
        self._reports = Counter(
            "prewarm_start_reports", "Start reports of deployments, by whether anything compiled",
            ["compiled"], registry=self.registry,
        )  # fmt: skip
        self._waiting = Gauge(
            "prewarm_waiting", "Deployments that wait for a model", registry=self.registry
        )
        for told in _COMPILED.values():
            self._reports.labels(told)
        self.registry.register(_Counted(self, database))

    def request_answered(self, route: str, status: int) -> None:
        """Count an HTTP request; ``route`` is one of few words, not what was asked for."""
        self._requests.labels(route, str(status)).inc()

    def report_kept(self, *, compiled: bool | None) -> None:
        """Count a start report."""
        self._reports.labels(_COMPILED[compiled]).inc()

    def scan_ended(self) -> None:
        """Note that the registry was looked through to its end just now."""
        self._scan_ended_s = self._now_s()

    def watch_waiting(self, count: Callable[[], int]) -> None:
        """Ask this for the number of deployments that wait."""
        self._waiting.set_function(lambda: float(count()))

    def text(self) -> bytes:
        """Return all figures as Prometheus reads them.

        Raises:
            PrewarmError: the database cannot be read.
        """
        return generate_latest(self.registry)

    def scan_age_s(self) -> float | None:
        """Return the seconds since a scan ended, None before the first."""
        if self._scan_ended_s is None:
            return None
        return max(0.0, self._now_s() - self._scan_ended_s)

    def at(self) -> str:
        """Return the present time as the database writes it."""
        return timestamp(self._now_s())


class _Counted:
    """What is counted when somebody looks."""

    def __init__(self, metrics: Metrics, database: Path) -> None:
        self._metrics = metrics
        self._database = database

    def describe(self) -> Iterable[Metric]:
        """Say nothing: asked at registration, when there may be no database yet."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """Count."""
        with Database(self._database) as database:
            totals = database.totals(self._metrics.at())
        entries = GaugeMetricFamily("prewarm_entries", "Entries by status", labels=["status"])
        for status, count in totals.entries.items():
            entries.add_metric([status.value], count)
        yield entries
        builds = GaugeMetricFamily("prewarm_builds", "Builds ended, by outcome", labels=["outcome"])
        for outcome, count in totals.builds.items():
            builds.add_metric([outcome], count)
        yield builds
        queued = totals.entries[Status.QUEUED]
        yield GaugeMetricFamily("prewarm_queue_length", "Entries that wait for a worker", queued)
        yield GaugeMetricFamily(
            "prewarm_requests", "Models that deployments asked for and that count", totals.requests
        )
        yield GaugeMetricFamily("prewarm_bundles", "Bundles that are published", totals.bundles)
        yield GaugeMetricFamily(
            "prewarm_bundle_bytes", "Size of the bundles that are published", totals.bundle_bytes
        )
        kept = read_quarantine(self._database.parent).bundles
        if kept is not None:
            yield GaugeMetricFamily(
                "prewarm_quarantined_bundles", "Bundles set aside, kept for inspection", kept
            )
        age_s = self._metrics.scan_age_s()
        if age_s is not None:
            yield GaugeMetricFamily(
                "prewarm_last_scan_age_seconds", "Seconds since the registry was looked through",
                age_s,
            )  # fmt: skip

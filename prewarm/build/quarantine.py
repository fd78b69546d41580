"""Setting a bundle aside that failed its check or its proof, so that nobody starts from it.

Owns the order and who may lose a bundle; the directory is ``store/quarantine.py``'s.

- First the database, then the manifest, then the file. A crash between two of them leaves entries
  queued, and ``mend`` does the rest at the start of the next scan.
- Wrong content is wrong for every builder, so it goes even if another's manifest names it. A bundle
  that only failed a proof may be right in the other's environment, and stays where it is named.
- A content that became right again (another builder published it anew) stays in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from prewarm.build.bench import Bench
from prewarm.build.publish import publish
from prewarm.build.step import Step
from prewarm.store.bundle import bundle_path
from prewarm.store.bundle_check import Fault, bundle_fault
from prewarm.store.entries import Entry
from prewarm.store.manifest import Manifest, read_manifests
from prewarm.store.quarantine import Note, move_to_quarantine
from prewarm.store.status import PUBLISHED


def set_aside(bench: Bench, sha256: str, *, reason: str, damaged: bool) -> tuple[Entry, ...]:
    """Take a bundle out of use everywhere and return the entries that were queued for it.

    ``damaged`` says that its content was found wrong; else it only failed a proof here.

    Raises:
        NoSpace: no space left for the manifest.
        NotWritable: the cache_dir cannot be written.
    """
    bundle = bundle_path(bench.settings.cache_dir, sha256)
    # Whoever found the damage may have looked closer than a scan does.
    bench.database.forget_file(bundle)
    queued = bench.database.quarantine(sha256, reason=reason, at=bench.at())
    publish(bench)
    if os.path.lexists(bundle) and _may_lose(bench, bundle, sha256, damaged=damaged):
        _move(bench, bundle, sha256, reason=reason)
    return queued


def fault_of(bench: Bench, entry: Entry) -> Fault | None:
    """Return what is wrong with the bundle of an entry that is published.

    Raises:
        NotWritable: the file system that it lies on cannot be reached.
    """
    if entry.status not in PUBLISHED:
        return None
    sha256 = entry.bundle_sha256 or ""
    if bench.database.is_quarantined(sha256, entry.build_key or ""):
        return Fault("its bundle was set aside", damaged=False)
    return bundle_fault(
        bundle_path(bench.settings.cache_dir, sha256),
        sha256=sha256,
        size_bytes=(entry.record or {}).get("bundle", {}).get("size_bytes"),
        digests=bench.database,
        reading=bench.pulse,
    )


def mend(bench: Bench) -> None:
    """Finish what a crash left of setting aside: a manifest that names it, a damaged file.

    Raises:
        NoSpace: no space left for the manifest.
        NotWritable: the cache_dir cannot be written.
    """
    rows = bench.database.quarantined_bundles()
    if not rows:
        return
    read, _ = read_manifests(bench.settings.cache_dir)
    ours = [found.manifest for found in read if _is_ours(bench, found.manifest)]
    if not _named(ours).isdisjoint(row.sha256 for row in rows):
        publish(bench)
    for row in rows:
        bundle = bundle_path(bench.settings.cache_dir, row.sha256)
        # One that is not damaged is nobody's any more, or another builder's by now.
        if os.path.lexists(bundle) and _is_wrong(bench, bundle, row.sha256):
            _move(bench, bundle, row.sha256, reason=row.quarantine_reason or "")


def _may_lose(bench: Bench, bundle: Path, sha256: str, *, damaged: bool) -> bool:
    """Tell whether everybody is better off without this file in its place."""
    if damaged and _is_wrong(bench, bundle, sha256):
        return True
    read, problems = read_manifests(bench.settings.cache_dir)
    others = [found.manifest for found in read if not _is_ours(bench, found.manifest)]
    # A manifest that cannot be read may name anything.
    return not problems and sha256 not in _named(others)


def _is_wrong(bench: Bench, bundle: Path, sha256: str) -> bool:
    fault = bundle_fault(bundle, sha256=sha256, digests=bench.database, reading=bench.pulse)
    return fault is not None and fault.damaged


def _move(bench: Bench, bundle: Path, sha256: str, *, reason: str) -> None:
    database = bench.database
    note = Note(
        sha256=sha256,
        reason=reason,
        at=bench.at(),
        models=tuple(dict.fromkeys(entry.model for entry in database.entries_on(sha256))),
        build_keys=database.keys_of_bundle(sha256),
    )
    problem = move_to_quarantine(bundle, bench.settings.state_dir, note)
    model = note.models[0] if note.models else ""
    bench.report(Step(model, "quarantine", problem or f"{reason}; it was set aside"))


def _is_ours(bench: Bench, manifest: Manifest) -> bool:
    return manifest.builder == bench.settings.builder


def _named(manifests: Iterable[Manifest]) -> frozenset[str]:
    return frozenset(entry.bundle.sha256 for found in manifests for entry in found.entries)

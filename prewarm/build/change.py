"""What changed of an entry since it was proven, in one sentence. Pure."""

from __future__ import annotations

from prewarm.build.job import Job
from prewarm.store.entries import Entry
from prewarm.store.status import PUBLISHED, Status

#: A proof has spoken; only a change of what it was about makes new work. An uncacheable graph is
#: not built again and again.
DECIDED = PUBLISHED | {Status.UNCACHEABLE}


def what_changed(entry: Entry, job: Job) -> str | None:
    """Return why the entry needs work, or None if the same would be published again."""
    if entry.status not in DECIDED:
        return "not published yet"
    if entry.checkpoint_digest != job.digest:
        return "the checkpoint's content changed since it was proven"
    if entry.architecture != job.architecture:
        return "the model's source or architecture changed since it was proven"
    # The entry may be that of another environment, which is then no change.
    if entry.build_key != job.key(own_graph=entry.own_graph, environment_id=entry.environment_id):
        return "the declaration changed since it was proven"
    return None

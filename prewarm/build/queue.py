"""What is worked on first: the order of the queue. Pure.

- What a deployment waits for goes before all else.
- A checkpoint whose bundle is there needs a proof alone, and does not wait behind long builds.
- Then small before large, so that one large model does not hold back many.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from prewarm.build.job import Job


def in_order(
    jobs: Iterable[Job], *, awaited: Collection[str], has_bundle: Collection[int]
) -> tuple[Job, ...]:
    """Return the jobs, what goes first before the rest.

    ``awaited`` holds the models that deployments wait for, ``has_bundle`` the ids of entries that a
    present bundle may fit.
    """

    def place(job: Job) -> tuple[bool, bool, int, str]:
        wanted = any(name in awaited for name in (job.model, *job.checkpoint.aliases))
        small = job.checkpoint.size_bytes
        return (not wanted, job.entry_id not in has_bundle, small, job.model)

    return tuple(sorted(jobs, key=place))

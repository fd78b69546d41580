"""Which manifest of each builder was read last, so that an older one is refused. Pure.

By time, then by generation: a builder writes neither smaller than before, and one that was set up
anew begins its generations again, at a later time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from prewarm.store.manifest import Manifest
from prewarm.store.timestamp import is_timestamp

#: Builders that share a cache_dir, with those that it had before.
_MOST_BUILDERS = 1024


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """When a manifest was made, and its generation."""

    generated_at: str
    generation: int

    @classmethod
    def of(cls, manifest: Manifest) -> Mark:
        """Return the mark of a manifest."""
        return cls(manifest.generated_at, manifest.generation)


Marks = Mapping[str, Mark]


def newer_than(marks: Marks, manifest: Manifest) -> Mark | None:
    """Return what was seen of a manifest's builder if the manifest is older, else None."""
    seen = marks.get(manifest.builder)
    return seen if seen is not None and Mark.of(manifest) < seen else None


def with_marks_of(marks: Marks, manifests: Iterable[Manifest]) -> dict[str, Mark]:
    """Return the marks after these manifests were read."""
    after = dict(marks)
    for manifest in manifests:
        mark = Mark.of(manifest)
        after[manifest.builder] = max(mark, after.get(manifest.builder, mark))
    # The oldest go first, which nobody writes any more.
    newest = sorted(after, key=lambda builder: after[builder], reverse=True)[:_MOST_BUILDERS]
    return {builder: after[builder] for builder in sorted(newest)}


def marks_from(value: Any) -> dict[str, Mark]:
    """Read marks from JSON; what is none is left out."""
    if not isinstance(value, dict):
        return {}
    return {
        builder: Mark(at, generation)
        for builder, (at, generation) in (
            (builder, pair) for builder, pair in value.items() if _is_pair(pair)
        )
    }


def marks_to_json(marks: Marks) -> dict[str, list[Any]]:
    """Return marks as they stand in JSON."""
    return {builder: [mark.generated_at, mark.generation] for builder, mark in marks.items()}


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and isinstance(value[0], str)
        and is_timestamp(value[0])
        and type(value[1]) is int
    )

"""Where a deployment gets manifests and bundles, as the hook sees it: a directory, or a builder.

Owns what both have in common: nothing older than what was seen is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from prewarm.deploy.keep import Keep, Memory
from prewarm.deploy.private import BundleFile
from prewarm.deploy.published import Manifests, Refusal
from prewarm.deploy.seen import Mark, newer_than, with_marks_of


@dataclass(frozen=True, slots=True)
class Wished:
    """Where a model stands that was asked for; no status where nothing is known yet."""

    status: str
    reason: str


class Source(Protocol):
    """What the hook needs of the place that it was given."""

    def where(self) -> str:
        """Return how it is called in a sentence."""

    def manifests(self) -> Manifests:
        """Return what is published there, as far as it is trusted and news.

        Raises:
            ManifestUnavailable: it cannot be read, or is not trusted.
        """

    def remember(self) -> None:
        """Keep what was read last for the next hook."""

    def cache_dir(self) -> Path:
        """Return where the bundles lie that are at hand."""

    def wish(self, model: str, facts: dict[str, str | None] | None, wait_s: float) -> Wished | None:
        """Ask for a model to be taken first and wait for it; None where no wish can be taken.

        Raises:
            ManifestUnavailable: it is not answered as asked; the code says why.
        """

    def at_hand(self, bundles: Sequence[BundleFile]) -> AbstractContextManager[None]:
        """Have bundles below ``cache_dir`` for as long as the block lasts.

        Raises:
            PrewarmError: one cannot be had.
        """


@dataclass(slots=True)
class News:
    """What was read last, against what was seen before."""

    keep: Keep
    source: str
    memory: Memory = field(default_factory=Memory)
    answer: bytes | bytearray | None = None
    changed: bool = False

    def load(self) -> Memory:
        """Return what is known of the source."""
        self.memory = self.keep.memory(self.source)
        return self.memory

    def admit(self, found: Manifests) -> Manifests:
        """Return the manifests without those that are older than what was seen."""
        fresh, refused = [], list(found.refused)
        for manifest in found.manifests:
            seen = newer_than(self.memory.marks, manifest)
            if seen is None:
                fresh.append(manifest)
            else:
                refused.append(self._replayed(manifest.builder, Mark.of(manifest), seen))
        marks = with_marks_of(self.memory.marks, fresh)
        if marks != self.memory.marks:
            self.memory, self.changed = replace(self.memory, marks=marks), True
        return Manifests(tuple(fresh), tuple(refused), as_is=found.as_is)

    def answered(self, body: bytes | bytearray, *, etag: str, sha256: str, as_is: bool) -> None:
        """Note an answer that is new."""
        self.memory = replace(self.memory, etag=etag, sha256=sha256, as_is=as_is)
        self.answer, self.changed = body, True

    def remember(self) -> None:
        """Keep it, if it is news."""
        if self.changed:
            self.keep.remember(self.source, self.memory, self.answer)

    def _replayed(self, builder: str, found: Mark, seen: Mark) -> Refusal:
        return Refusal(
            "replayed",
            f"{self.source}: the manifest of builder {builder[:60]!r} is older than one that was "
            f"read before (generation {found.generation} of {found.generated_at}, seen "
            f"{seen.generation} of {seen.generated_at}); if that is right, remove "
            f"{self.keep.place / 'seen'}",
        )

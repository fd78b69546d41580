"""A model's compile run and proofs, asked from the real children one by one, without a scan."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prewarm.build.asking import Desk, ask_compile, ask_proof
from prewarm.build.verdict import Verdict, judge
from prewarm.registry.declaration_file import read_declaration
from prewarm.store.torchside_copy import copy_torchside

from .bed import Model


@dataclass(frozen=True)
class Children:
    """The children of one model, with the cache directory that they share."""

    model: Model
    root: Path

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def compile(self, *, mode: str = "default", recompile_limit: int | None = None) -> dict:
        """Compile every declared call into the cache."""
        return ask_compile(
            self._desk(), self.root / "compile", cache=self.cache, mode=mode,
            recompile_limit=recompile_limit,
        )  # fmt: skip

    def prove(
        self,
        name: str = "prove",
        *,
        mode: str = "default",
        recompile_limit: int | None = None,
        shim: bool = False,
        variables: dict[str, str] | None = None,
    ) -> dict:
        """Make the declared calls in a fresh process, twice, and compare with eager."""
        calls = self._desk().declaration.calls()
        return ask_proof(
            self._desk(variables), self.root / name, cache=self.cache, mode=mode,
            order=range(len(calls)), full=True, user=None, recompile_limit=recompile_limit,
            shim=shim,
        )  # fmt: skip

    def _desk(self, variables: dict[str, str] | None = None) -> Desk:
        copy = self.root / "copy"
        if not copy.exists():
            copy_torchside(copy)
        return Desk(
            declaration=read_declaration(
                self.model.directory / "prewarm.toml", root=self.model.place.registry
            ),
            checkpoint=self.model.directory / "v1",
            copy=copy,
            log=self.root / "log",
            memory_bytes=None,
            stop=threading.Event(),
            environ=self.model.place.environ() | (variables or {}),
        )


def told(verdict: Verdict) -> str:
    """Return a verdict as one line for the table."""
    return f"{verdict.status}, {verdict.code}: {verdict.reason}"


def verdict_of(proof: dict[str, Any]) -> Verdict:
    return judge([proof])

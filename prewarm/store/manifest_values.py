"""The manifest's values: one builder's published entries, to and from JSON.

Owns what the dataclasses hold and their exact keys. Reads and writes no file, knows no signature.

- ``from_dict`` is strict: every missing, unknown or wrong field is told, all in one line.
- ``to_dict`` gives back exactly what ``from_dict`` took, so a signature still holds over it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Self

from prewarm.store.manifest_reading import Reading
from prewarm.store.status import PUBLISHED, Status
from prewarm.store.timestamp import is_timestamp

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ManifestCall:
    """One declared call with its figures; a figure that was not taken is None."""

    sizes: dict[str, int]
    cold_s: float | None
    warm_s: float | None
    eager_ms: float | None
    compiled_ms: float | None
    graphs: int | None
    graph_breaks: tuple[str, ...]

    @classmethod
    def read(cls, value: object, where: str, reading: Reading) -> Self:
        """Read a call; what is wrong is noted in ``reading``."""
        table = reading.table(value, where, cls)
        sizes = reading.mapping(table["sizes"], f"{where}.sizes")
        return cls(
            sizes={name: reading.count(sizes[name], f"{where}.sizes.{name}") for name in sizes},
            cold_s=reading.optional_number(table["cold_s"], f"{where}.cold_s"),
            warm_s=reading.optional_number(table["warm_s"], f"{where}.warm_s"),
            eager_ms=reading.optional_number(table["eager_ms"], f"{where}.eager_ms"),
            compiled_ms=reading.optional_number(table["compiled_ms"], f"{where}.compiled_ms"),
            graphs=reading.optional_count(table["graphs"], f"{where}.graphs"),
            graph_breaks=reading.texts(table["graph_breaks"], f"{where}.graph_breaks"),
        )


@dataclass(frozen=True, slots=True)
class ManifestShapeSet:
    """A shape set with its own status and its calls in order."""

    name: str
    status: Status
    reason: str | None
    calls: tuple[ManifestCall, ...]

    @classmethod
    def read(cls, value: object, where: str, reading: Reading) -> Self:
        """Read a shape set; what is wrong is noted in ``reading``."""
        table = reading.table(value, where, cls)
        calls = reading.rows(table["calls"], f"{where}.calls")
        return cls(
            name=reading.text(table["name"], f"{where}.name"),
            status=reading.status(table["status"], f"{where}.status", frozenset(Status)),
            reason=reading.optional_text(table["reason"], f"{where}.reason"),
            calls=tuple(
                ManifestCall.read(call, f"{where}.calls[{number}]", reading)
                for number, call in enumerate(calls)
            ),
        )


@dataclass(frozen=True, slots=True)
class ManifestBundle:
    """Which packed file an entry starts from, and how much it unpacks to."""

    sha256: str
    size_bytes: int
    unpacked_bytes: int
    files: int

    @classmethod
    def read(cls, value: object, where: str, reading: Reading) -> Self:
        """Read a bundle; what is wrong is noted in ``reading``."""
        table = reading.table(value, where, cls)
        return cls(
            sha256=reading.sha256(table["sha256"], f"{where}.sha256"),
            size_bytes=reading.count(table["size_bytes"], f"{where}.size_bytes"),
            unpacked_bytes=reading.count(table["unpacked_bytes"], f"{where}.unpacked_bytes"),
            files=reading.count(table["files"], f"{where}.files"),
        )


@dataclass(frozen=True, slots=True)
class ManifestCompile:
    """How it was compiled: the mode that was built, the one that the server asks for."""

    mode: str
    asked_mode: str
    dynamic: bool | str
    recompile_limit: int | None

    @classmethod
    def read(cls, value: object, where: str, reading: Reading) -> Self:
        """Read how it was compiled; what is wrong is noted in ``reading``."""
        table = reading.table(value, where, cls)
        dynamic = table["dynamic"]
        if not isinstance(dynamic, bool) and dynamic != "auto":
            reading.wrong(f"{where}.dynamic", dynamic, 'false, true or "auto"')
        limit = reading.optional_count(table["recompile_limit"], f"{where}.recompile_limit")
        return cls(
            mode=reading.text(table["mode"], f"{where}.mode"),
            asked_mode=reading.text(table["asked_mode"], f"{where}.asked_mode"),
            dynamic=dynamic,
            recompile_limit=limit,
        )


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """A published checkpoint in an environment, with its bundle and its proof."""

    model: str
    aliases: tuple[str, ...]
    checkpoint: str
    architecture: str
    environment: str
    build_key: str
    status: Status
    reason: str | None
    code: str | None
    requires: tuple[str, ...]
    covers: str
    bundle: ManifestBundle
    compile: ManifestCompile
    variables: dict[str, str]
    shape_sets: tuple[ManifestShapeSet, ...]
    proof: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as it stands in the JSON."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def read(cls, value: object, where: str, reading: Reading) -> Self:
        """Read an entry; what is wrong is noted in ``reading``."""
        table = reading.table(value, where, cls)
        variables = reading.mapping(table["variables"], f"{where}.variables")
        sets = reading.rows(table["shape_sets"], f"{where}.shape_sets")
        status = reading.status(table["status"], f"{where}.status", PUBLISHED)
        reason = reading.optional_text(table["reason"], f"{where}.reason")
        if status is Status.PARTIAL and not reason:
            reading.wrong(f"{where}.reason", reason, "why it is only partial")
        return cls(
            model=reading.text(table["model"], f"{where}.model"),
            aliases=reading.texts(table["aliases"], f"{where}.aliases"),
            checkpoint=reading.text(table["checkpoint"], f"{where}.checkpoint"),
            architecture=reading.text(table["architecture"], f"{where}.architecture"),
            environment=reading.text(table["environment"], f"{where}.environment"),
            build_key=reading.text(table["build_key"], f"{where}.build_key"),
            status=status,
            reason=reason,
            code=reading.optional_text(table["code"], f"{where}.code"),
            requires=reading.texts(table["requires"], f"{where}.requires"),
            covers=reading.text(table["covers"], f"{where}.covers"),
            bundle=ManifestBundle.read(table["bundle"], f"{where}.bundle", reading),
            compile=ManifestCompile.read(table["compile"], f"{where}.compile", reading),
            variables={
                name: reading.text(variables[name], f"{where}.variables.{name}")
                for name in variables
            },
            shape_sets=tuple(
                ManifestShapeSet.read(found, f"{where}.shape_sets[{number}]", reading)
                for number, found in enumerate(sets)
            ),
            proof=reading.report(table["proof"], f"{where}.proof"),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that one builder publishes. Each writing has a higher generation than the one before."""

    builder: str
    version: str
    environments: dict[str, dict[str, str | None]]
    entries: tuple[ManifestEntry, ...]
    generated_at: str
    generation: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the object that is signed."""
        return {
            "format": FORMAT,
            "builder": self.builder,
            "generation": self.generation,
            "generated_at": self.generated_at,
            "version": self.version,
            "environments": self.environments,
            "entries": [entry.to_dict() for entry in self.entries],
        }

    @classmethod
    def from_dict(cls, signed: object) -> Self:
        """Read the object that was signed.

        Raises:
            ManifestUnavailable: its format is unknown, or fields are wrong; all are named.
        """
        reading = Reading()
        manifest = cls._read(signed, reading)
        reading.refuse()
        return manifest

    @classmethod
    def _read(cls, signed: object, reading: Reading) -> Self:
        found_format = signed.get("format") if isinstance(signed, dict) else None
        if type(found_format) is not int or found_format != FORMAT:
            reading.wrong("format", found_format, f"{FORMAT}; upgrade this prewarm or the builder")
            reading.refuse()
        table = reading.table(signed, "", cls, also=("format",))
        generated_at = reading.text(table["generated_at"], "generated_at")
        if not is_timestamp(generated_at):
            reading.wrong("generated_at", generated_at, "a time such as 2026-11-30T04:16:26.000Z")
        environments = reading.mapping(table["environments"], "environments")
        manifest = cls(
            builder=reading.text(table["builder"], "builder"),
            version=reading.text(table["version"], "version"),
            environments={
                name: reading.facts(environments[name], f"environments.{name}")
                for name in environments
            },
            entries=tuple(
                ManifestEntry.read(entry, f"entries[{number}]", reading)
                for number, entry in enumerate(reading.rows(table["entries"], "entries"))
            ),
            generated_at=generated_at,
            generation=reading.count(table["generation"], "generation"),
        )
        _check_together(manifest, reading)
        return manifest


def _plain(value: Any) -> Any:
    # Not dataclasses.asdict: it copies every proof to its depth, 0.3 s for 1,000 entries.
    if isinstance(value, tuple):
        return [_plain(below) for below in value]
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def _check_together(manifest: Manifest, reading: Reading) -> None:
    seen: set[tuple[str, str]] = set()
    for number, entry in enumerate(manifest.entries):
        if entry.environment and entry.environment not in manifest.environments:
            reading.wrong(
                f"entries[{number}].environment", entry.environment, "one of `environments`"
            )
        key = (entry.model, entry.environment)
        if entry.model and key in seen:
            reading.wrong(f"entries[{number}].model", entry.model, "each model once an environment")
        seen.add(key)

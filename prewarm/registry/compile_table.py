"""The ``[compile]`` table of a declaration: what the server compiles, and how.

Owns its keys, defaults and what goes together. Does not decide which mode is tried next: the build
does.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator

from prewarm.registry.toml_scalars import PlainTable, Table, matching, refuse

MODES = ("max-autotune", "max-autotune-no-cudagraphs", "default")

Mode = Literal["max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead", "default"]


class Target(Table):
    """One thing that the server compiles; what is not stated follows the whole table."""

    at: Annotated[str, matching(r"\.|\w+(\.\w+)*", '"." or a name such as "unet" or "vae.decode"')]
    fullgraph: bool | None = None
    regional: bool | None = None

    def stated(self) -> str | dict[str, str | bool]:
        """Return the target as it is written: its name alone where nothing else is stated."""
        stated: dict[str, str | bool] = self.model_dump(exclude_none=True)
        return stated if len(stated) > 1 else self.at


def _targets(value: object) -> object:
    if not isinstance(value, list | tuple):
        return value
    return tuple({"at": one} if isinstance(one, str) else one for one in value)


def _modes(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _dynamic(value: object) -> object:
    if value is True or value is False or value == "auto":
        return value
    refuse([((), f'is {value!r}, expected false (fixed sizes), true or "auto"')])
    return value


class CompileTable(Table):
    """``[compile]``: the arguments of ``torch.compile``, the ladder of modes, the time for a build.

    ``dynamic`` has no default: whether sizes are fixed decides what a deployment may call.
    """

    targets: Annotated[tuple[Target, ...], BeforeValidator(_targets)] = (Target(at="."),)
    mode: Annotated[tuple[Mode, ...], BeforeValidator(_modes)] = (
        "max-autotune",
        "max-autotune-no-cudagraphs",
        "default",
    )
    dynamic: Annotated[bool | Literal["auto"], BeforeValidator(_dynamic)]
    fullgraph: bool = False
    regional: bool = False
    config: PlainTable = Field(default_factory=dict)
    timeout_s: float = Field(default=3600.0, gt=0, allow_inf_nan=False)

    @field_validator("targets")
    @classmethod
    def _targets_are_distinct(cls, value: tuple[Target, ...]) -> tuple[Target, ...]:
        if not value:
            refuse([((), 'is [], expected at least one target, e.g. ["."]')])
        _refuse_repeats([target.at for target in value])
        return value

    @field_validator("mode")
    @classmethod
    def _modes_are_distinct(cls, value: tuple[Mode, ...]) -> tuple[Mode, ...]:
        if not value:
            refuse([((), 'is [], expected at least one mode, e.g. ["max-autotune"]')])
        _refuse_repeats(list(value))
        return value

    def resolved_targets(self) -> tuple[dict[str, str | bool], ...]:
        """Return each target with ``fullgraph`` and ``regional`` settled."""
        return tuple(
            {
                "at": target.at,
                "fullgraph": self.fullgraph if target.fullgraph is None else target.fullgraph,
                "regional": self.regional if target.regional is None else target.regional,
            }
            for target in self.targets
        )


def _refuse_repeats(words: list[str]) -> None:
    refuse(
        ((index,), f"is {word!r} for the second time; remove it")
        for index, word in enumerate(words)
        if word in words[:index]
    )

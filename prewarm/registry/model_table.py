"""The ``[registry]`` and ``[model]`` tables: what a checkpoint is and how it is loaded.

Owns their keys, defaults and what goes together. Does not read files or resolve paths.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from prewarm.registry.toml_scalars import (
    Function,
    Issue,
    PlainTable,
    Strings,
    Table,
    matching,
    refuse,
)

LOADERS = ("transformers", "diffusers", "torch", "export", "python", "command")

#: Keys that only some loaders read: elsewhere they would be passed over in silence.
_KEYS_OF_LOADERS = {
    "class": ("transformers", "diffusers"),
    "factory": ("torch", "python"),
    "state_dict": ("torch", "python"),
    "command": ("command",),
    "ready": ("command",),
    "ready_s": ("command",),
    "processes": ("command",),
    "cache_variables": ("command",),
}


def _patterns(value: object) -> object:
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


class RegistryTable(Table):
    """``[registry]``: what holds for the whole tree; it stands only in the root's file."""

    exclude: Strings = ()
    keep: str = ""

    @field_validator("keep")
    @classmethod
    def _keep_is_known(cls, value: str) -> str:
        if value not in ("", "all") and not re.fullmatch(r"latest:[1-9][0-9]*", value):
            refuse([((), f'is {value!r}, expected "all" or "latest:N", e.g. "latest:3"')])
        return value


class ModelTable(Table):
    """``[model]``: how a checkpoint is loaded and under which conditions it runs.

    ``match`` empty means the file's own directory. ``dtype`` empty means what the checkpoint and
    its loader give; ``device`` is "cuda" unless stated, as in the documented sample.
    """

    match: Annotated[tuple[str, ...], BeforeValidator(_patterns)] = ()
    loader: Literal["transformers", "diffusers", "torch", "export", "python", "command"]
    class_: Annotated[str, matching(r"|[A-Za-z_]\w*(\.\w+)*", 'a class name, e.g. "AutoModel"')] = (
        Field(default="", alias="class")
    )
    factory: Function = ""
    path: Strings = ()
    state_dict: str = ""
    kwargs: PlainTable = Field(default_factory=dict)
    setup: Function = ""
    dtype: Literal["", "bfloat16", "float16", "float32", "float64"] = ""
    device: Literal["cuda", "cpu"] = "cuda"
    grad: Literal["inference", "no_grad", "grad"] = "inference"
    loss: str = ""
    requires_grad: bool = True
    autocast: Literal["", "float16", "bfloat16"] = ""
    memory_format: Literal["", "channels_last", "channels_last_3d", "contiguous_format"] = ""
    threads: int = Field(default=0, ge=0, le=4096)
    weights: Literal["load", "random"] = "load"
    interpreter: Strings = ()
    command: Strings = ()
    ready: str = ""
    ready_s: float | None = Field(default=None, gt=0)
    processes: int = Field(default=1, ge=1)
    cache_variables: Strings = ()

    @field_validator("match")
    @classmethod
    def _match_stays_below(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        refuse(
            ((), f"is {pattern!r}, expected a glob relative to the file's directory, below it")
            for pattern in value
            if not pattern or pattern.startswith("/") or ".." in PurePosixPath(pattern).parts
        )
        return value

    @field_validator("state_dict")
    @classmethod
    def _state_dict_is_inside(cls, value: str) -> str:
        if value.startswith("/") or ".." in PurePosixPath(value).parts:
            refuse([((), f"is {value!r}, expected a file inside the checkpoint")])
        return value

    @field_validator("interpreter", "command")
    @classmethod
    def _no_empty_word(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if value and not value[0]:
            refuse([((0,), 'is "", expected a program')])
        return value

    @model_validator(mode="after")
    def _keys_go_together(self) -> ModelTable:
        refuse([*self._missing_for_loader(), *self._foreign_to_loader(), *self._loss_issues()])
        return self

    def _missing_for_loader(self) -> list[Issue]:
        if self.loader in ("transformers", "diffusers") and not self.class_:
            example = "AutoModel" if self.loader == "transformers" else "DiffusionPipeline"
            return [
                (("class",), f'is not stated for loader "{self.loader}"; write class = "{example}"')
            ]
        if self.loader in ("torch", "python") and not self.factory:
            return [
                (
                    ("factory",),
                    f'is not stated for loader "{self.loader}"; '
                    'write factory = "package.module:function"',
                )
            ]
        if self.loader == "command" and not self.command:
            return [(("command",), 'is not stated for loader "command"; write command = ["…"]')]
        return []

    def _foreign_to_loader(self) -> list[Issue]:
        stated = {"class" if key == "class_" else key for key in self.model_fields_set}
        return [
            ((key,), f'belongs to loader {_either(loaders)}, but loader is "{self.loader}"')
            for key, loaders in _KEYS_OF_LOADERS.items()
            if key in stated and self.loader not in loaders and self._stated(key)
        ]

    def _stated(self, key: str) -> bool:
        value = self.class_ if key == "class" else getattr(self, key)
        return bool(value)

    def _loss_issues(self) -> list[Issue]:
        if self.grad == "grad" and not self.loss:
            return [(("loss",), 'is not stated for grad = "grad"; write loss = "sum"')]
        if self.grad != "grad" and self.loss:
            return [(("loss",), f'needs grad = "grad", but grad is "{self.grad}"')]
        if self.loss and self.loss != "sum" and ":" not in self.loss:
            return [(("loss",), f'is {self.loss!r}, expected "sum" or "package.module:function"')]
        return []


def _either(words: tuple[str, ...]) -> str:
    return " or ".join(f'"{word}"' for word in words)

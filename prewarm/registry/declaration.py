"""A declaration: how a checkpoint is loaded, compiled and called.

Owns what is derived from its tables: the request that a child gets, the facts that enter the build
key, the calls, and the wishes whose work is not done yet. Does not find or read files:
``declaration_file`` does.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import model_validator

from prewarm.errors import ConfigError
from prewarm.registry.compile_table import CompileTable
from prewarm.registry.model_table import ModelTable, RegistryTable
from prewarm.registry.shape_set import ShapeSet
from prewarm.registry.toml_scalars import Issue, Table, as_tuple, refuse


class DeclarationTables(Table):
    """The tables of one ``prewarm.toml`` that declares a model, checked one by one and together."""

    registry: RegistryTable = RegistryTable()
    model: ModelTable
    compile: CompileTable
    shapes: Annotated[tuple[ShapeSet, ...], as_tuple()]

    @model_validator(mode="before")
    @classmethod
    def _command_compiles_itself(cls, value: Any) -> Any:
        # A server that is run as it is decides for itself what it compiles and how.
        model = value.get("model") if isinstance(value, dict) else None
        if isinstance(model, dict) and model.get("loader") == "command":
            return {"compile": {"dynamic": "auto"}, **value}
        return value

    @model_validator(mode="after")
    def _tables_agree(self) -> DeclarationTables:
        command = self.model.loader == "command"
        issues: list[Issue] = []
        if not self.shapes:
            issues.append((("shapes",), "is empty; write [[shapes]] with a name and inputs"))
        names = [shape_set.name for shape_set in self.shapes]
        for index, shape_set in enumerate(self.shapes):
            if shape_set.name in names[:index]:
                issues.append((("shapes", index, "name"), f'"{shape_set.name}" stands twice'))
            if shape_set.requests and not command:
                issues.append((("shapes", index, "requests"), 'belongs to loader "command"'))
            if command and not shape_set.requests:
                issues.append((("shapes", index, "requests"), 'is not stated for loader "command"'))
            if not (command or shape_set.call != "." or shape_set.takes_something()):
                issues.append(
                    (
                        ("shapes", index, "inputs"),
                        'is not stated; write inputs.x = { dtype = "float32", shape = [1] }',
                    )
                )
        refuse(issues)
        return self


@dataclass(frozen=True, slots=True)
class Call:
    """One declared call: the shape set it belongs to and its sizes."""

    shape_set: str
    sizes: dict[str, int]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The declaration that covers a checkpoint, with the file it was read from."""

    registry: RegistryTable
    model: ModelTable
    compile: CompileTable
    shapes: tuple[ShapeSet, ...]
    file: Path
    #: How errors name the file: relative to the registry.
    label: str = "prewarm.toml"

    @classmethod
    def from_tables(
        cls, tables: DeclarationTables, file: Path, label: str = "prewarm.toml"
    ) -> Declaration:
        """Join validated tables with the file they stand in."""
        return cls(tables.registry, tables.model, tables.compile, tables.shapes, file, label)

    @property
    def interpreter(self) -> tuple[str, ...]:
        """Return the argv of the deployment's python; empty for the builder's own."""
        return self.model.interpreter

    @property
    def timeout_s(self) -> float:
        """Return how long one build may take."""
        return self.compile.timeout_s

    def calls(self) -> tuple[Call, ...]:
        """Return every declared call in order."""
        return tuple(
            Call(shape_set.name, sizes) for shape_set in self.shapes for sizes in shape_set.calls()
        )

    def source_directories(self) -> tuple[Path, ...]:
        """Return the directories of ``path``, absolute, relative ones beside the file.

        Raises:
            ConfigError: one of them is no directory.

        """
        beside = self.file.absolute().parent
        directories = tuple((beside / entry).resolve() for entry in self.model.path)
        for entry, directory in zip(self.model.path, directories, strict=True):
            if not directory.is_dir():
                raise ConfigError(
                    f"{self.label}: [model] path: {entry!r} is no directory ({directory}); "
                    "paths are relative to the file"
                )
        return directories

    def request(self) -> dict[str, Any]:
        """Return what a child needs to load, compile and call the model, as plain values.

        Raises:
            ConfigError: a directory of ``path`` does not exist.

        """
        return {
            "model": {
                **self._model_facts(),
                "path": [str(directory) for directory in self.source_directories()],
                "state_dict": self.model.state_dict,
                "weights": self.model.weights,
            },
            "compile": {
                "targets": list(self.compile.resolved_targets()),
                "mode": list(self.compile.mode),
                "dynamic": self.compile.dynamic,
                "fullgraph": self.compile.fullgraph,
                "regional": self.compile.regional,
                "config": self.compile.config,
            },
            "shapes": [shape_set.to_dict() for shape_set in self.shapes],
        }

    def key_facts(self) -> dict[str, Any]:
        """Return what of the declaration reaches the graph, for the build key.

        Not in it: names, ``match``, ``path`` (its source is in the architecture), the interpreter,
        ``weights``, later modes and timeouts.
        """
        return {
            **self._model_facts(),
            "targets": list(self.compile.resolved_targets()),
            "mode": self.compile.mode[0],
            "dynamic": self.compile.dynamic,
            "fullgraph": self.compile.fullgraph,
            "regional": self.compile.regional,
            "config": self.compile.config,
            "shapes": [shape_set.key_facts() for shape_set in self.shapes],
        }

    def recorded(self) -> dict[str, Any]:
        """Return what reaches the graph in the declaration's own words, for a later comparison.

        ``key`` is the digest of ``key_facts()``: where it is equal, only words differ. ``load`` is
        what a deployment needs beside it to build and call the same module; in it, the arguments
        are text, since a manifest sorts keys and the order of arguments is part of a graph.
        """
        text = json.dumps(self.key_facts(), sort_keys=True, separators=(",", ":"))
        return {
            "key": hashlib.sha256(text.encode()).hexdigest(),
            "model": self._model_facts(),
            "compile": {
                "targets": [target.stated() for target in self.compile.targets],
                "mode": self.compile.mode[0],
                "dynamic": self.compile.dynamic,
                "fullgraph": self.compile.fullgraph,
                "regional": self.compile.regional,
                "config": self.compile.config,
            },
            "shapes": [shape_set.to_dict() for shape_set in self.shapes],
            "load": {
                "path": list(self.model.path),
                "state_dict": self.model.state_dict,
                "weights": self.model.weights,
                "arguments": json.dumps([shape_set.arguments() for shape_set in self.shapes]),
            },
        }

    def _model_facts(self) -> dict[str, Any]:
        return {
            "loader": self.model.loader,
            "class": self.model.class_,
            "factory": self.model.factory,
            "kwargs": self.model.kwargs,
            "setup": self.model.setup,
            "dtype": self.model.dtype,
            "device": self.model.device,
            "grad": self.model.grad,
            "loss": self.model.loss,
            "requires_grad": self.model.requires_grad,
            "autocast": self.model.autocast,
            "memory_format": self.model.memory_format,
            "threads": self.model.threads,
        }

    def not_yet(self) -> tuple[str, ...]:
        """Return one line for each stated wish whose work is not done yet."""
        lines: list[str] = []
        if self.model.loader in ("diffusers", "command"):
            lines.append(
                f'[model] loader = "{self.model.loader}": not built yet; '
                'use "transformers", "torch", "python" or "export"'
            )
        if any(target["regional"] for target in self.compile.resolved_targets()):
            lines.append("[compile] regional = true: not built yet; remove it to compile the whole")
        lines += [
            f"[[shapes]] {shape_set.name} steps = {shape_set.steps}: not built yet; "
            "declare the single call instead"
            for shape_set in self.shapes
            if shape_set.steps
        ]
        return tuple(lines)

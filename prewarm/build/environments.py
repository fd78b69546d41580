"""The environments of a run: what each declaration's interpreter finds here, gathered once.

Owns what of a declaration decides which facts are gathered.
"""

from __future__ import annotations

import os

from prewarm.environment import Environment
from prewarm.errors import ConfigError
from prewarm.present import present_environment
from prewarm.registry.declaration import Declaration


class Environments:
    """The environment present for a declaration, gathered once for each kind."""

    def __init__(self) -> None:
        self._gathered: dict[tuple[object, ...], Environment] = {}

    def __call__(self, declaration: Declaration) -> Environment:
        """Return the environment of a declaration's interpreter and device.

        Raises:
            ConfigError: the interpreter does not tell its facts.
        """
        model = declaration.model
        key = (declaration.interpreter, model.device, model.threads, library_of(declaration))
        if key not in self._gathered:
            self._gathered[key] = present_environment(
                declaration.interpreter,
                device=model.device,
                threads=model.threads,
                library=library_of(declaration),
            )
        return self._gathered[key]


def library_of(declaration: Declaration) -> str:
    """Return the library whose version decides the graph: transformers, or the factory's."""
    model = declaration.model
    if model.loader == "transformers":
        return "transformers"
    package = (model.factory or "").partition(":")[0].partition(".")[0]
    own = [directory / package for directory in declaration.source_directories()] if package else []
    if any(path.is_dir() or path.with_suffix(".py").is_file() for path in own):
        return ""
    return package


def check_compiler(environment: Environment, declaration: Declaration) -> None:
    """Pass if what a start needs beside its bundle is here.

    Raises:
        ConfigError: a CPU start without a C++ compiler.
    """
    if declaration.model.device == "cpu" and environment.get("cxx_version") is None:
        named = environment.get("cxx") or os.environ.get("CXX") or "g++"
        raise ConfigError(
            f"no C++ compiler: {named} does not run here, and torch needs one on a CPU, "
            "even on a perfect hit (pytorch #116696); install g++ or set CXX",
            code="no_compiler",
        )

"""A job: one entry with everything that was found out about it before its work begins.

Values only.
"""

from __future__ import annotations

from dataclasses import dataclass

from prewarm.build.key import build_key
from prewarm.environment import Environment
from prewarm.registry.checkpoint import Checkpoint
from prewarm.registry.declaration import Declaration

#: torch keeps this many graphs for one piece of code unless told otherwise
#: (torch/_dynamo/config.py, 2.9 to 2.14).
DEFAULT_RECOMPILE_LIMIT = 8


@dataclass(frozen=True, slots=True)
class Job:
    """One checkpoint in one environment, with its digests."""

    entry_id: int
    model: str
    checkpoint: Checkpoint
    declaration: Declaration
    environment: Environment
    digest: str
    architecture: str
    #: The token of the worker that claimed the entry; None for work in the foreground.
    lease: str | None = None

    def changed_file(self) -> str | None:
        """Return the name of a file that is gone or is not what was digested, if there is one."""
        for file in self.checkpoint.files:
            try:
                found = file.path.stat()
            except OSError:
                return file.name
            if (found.st_size, found.st_mtime_ns) != (file.size_bytes, file.mtime_ns):
                return file.name
        return None

    def key(self, *, own_graph: bool, environment_id: str | None = None) -> str:
        """Return the build key, maybe of another environment.

        With ``own_graph`` it is the one that holds for this checkpoint alone.
        """
        return build_key(
            architecture=self.architecture,
            environment_id=environment_id or self.environment.id,
            declared=self.declaration.key_facts(),
            own_graph_of=self.digest if own_graph else None,
        )

    @property
    def keys(self) -> frozenset[str]:
        """The build keys under which a bundle of use may be found."""
        return frozenset(self.key(own_graph=own_graph) for own_graph in (False, True))

    @property
    def modes(self) -> tuple[str, ...]:
        """The declared modes; the first is what the server asks for."""
        return tuple(self.declaration.compile.mode)

    @property
    def recompile_limit(self) -> int | None:
        """The limit that the declared calls need where torch's own is too low."""
        calls = len(self.declaration.calls())
        return calls if calls > DEFAULT_RECOMPILE_LIMIT else None

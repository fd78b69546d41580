"""One look at the registry: every checkpoint, its declaration, and whether it is all there.

Owns the join of layout, declarations and completeness, and the rule that no fault stops the others:
each is kept with the checkpoint it concerns. Changes nothing, and computes no digest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from prewarm.errors import ConfigError, PrewarmError, RegistryError
from prewarm.registry.checkpoint import Checkpoint, Excluded, list_checkpoint
from prewarm.registry.completeness import Completeness, judge
from prewarm.registry.declaration import Declaration
from prewarm.registry.declaration_file import DeclarationFile
from prewarm.registry.declaration_tree import DeclarationTree
from prewarm.registry.layout import Located, locate_checkpoints
from prewarm.registry.path_glob import matches
from prewarm.registry.scan_memory import ScanMemory
from prewarm.registry.versions import left_out

_UNKNOWN = Completeness("complete", None)


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint as a scan sees it.

    ``declaration`` and ``problem`` are None where no declaration covers it: it is left alone. With
    a ``problem`` it cannot be built, whatever its completeness.
    """

    checkpoint: Checkpoint
    declaration: Declaration | None
    problem: PrewarmError | None
    completeness: Completeness


def scan_registry(
    root: Path, *, settle_s: float, now_s: float, memory: ScanMemory | None = None
) -> tuple[Found, ...]:
    """Return every checkpoint of a registry that ``keep`` keeps, sorted by name.

    With a memory, checkpoints that did not change since the last scan are not read again.

    Raises:
        ConfigError: the registry is no directory that can be read.

    """
    root = _real_root(root)
    tree = DeclarationTree(root)
    excluded = _excluded(tree.file_in(root))
    found: list[Found] = []
    told: set[Path] = set()
    for located in locate_checkpoints(root, tree, excluded=excluded):
        covering = _covering(tree, located)
        if covering is not None:
            told.add(covering.file)
        try:
            checkpoint = _list(located, root, excluded)
        except FileNotFoundError:
            continue  # it vanished since it was located
        judge_now = partial(judge, now_s=now_s, settle_s=settle_s, memory=memory)
        found.append(_found(checkpoint, located, covering, judge_now))
    if memory is not None:
        memory.forget_all_but(one.checkpoint.name for one in found)
    found = _kept(found, tree.file_in(root))
    found += _lost_declarations(tree, told, root)
    return tuple(sorted(found, key=lambda one: one.checkpoint.name))


def select_named(found: Sequence[Found], names: Sequence[str], registry: Path) -> tuple[Found, ...]:
    """Return the checkpoints that go by one of ``names`` (names or aliases), in their order.

    Raises:
        RegistryError: there is none of a name.
    """
    known = {
        name: item.checkpoint.name
        for item in found
        for name in (item.checkpoint.name, *item.checkpoint.aliases)
    }
    wanted = set()
    for name in names:
        if name.rstrip("/") not in known:
            raise RegistryError(
                f"{name}: no such checkpoint in {registry}, or `keep` or `exclude` leaves it out; "
                "`prewarm status` lists them"
            )
        wanted.add(known[name.rstrip("/")])
    return tuple(item for item in found if item.checkpoint.name in wanted)


def _real_root(root: Path) -> Path:
    real = Path(os.path.realpath(root))
    if not real.is_dir():
        what = "is no directory" if real.exists() else "does not exist"
        raise ConfigError(f"registry {root} {what}; name the directory that holds your checkpoints")
    try:
        os.scandir(real).close()
    except OSError as error:
        raise ConfigError(
            f"registry {root} cannot be read ({error.strerror}); allow reading it"
        ) from error
    return real


def _excluded(at_root: DeclarationFile | None) -> Excluded:
    patterns = at_root.registry.exclude if at_root else ()
    if not patterns:
        return lambda path: False
    return lambda path: any(matches(pattern, path) for pattern in patterns)


def _covering(tree: DeclarationTree, located: Located) -> DeclarationFile | None:
    if located.problem is not None:
        return None
    return tree.covering(located.path, (located.name,))


def _list(located: Located, root: Path, excluded: Excluded) -> Checkpoint | RegistryError:
    if located.problem is not None:
        return located.problem
    try:
        return list_checkpoint(
            located.path,
            name=located.name,
            root=root,
            aliases=tuple(sorted(located.aliases)),
            excluded=excluded,
        )
    except FileNotFoundError:
        raise
    except OSError as error:
        return RegistryError(f"{located.name}: cannot be read ({error.strerror}); allow reading")


def _found(
    checkpoint: Checkpoint | RegistryError,
    located: Located,
    covering: DeclarationFile | None,
    judge_now: Callable[[Checkpoint], Completeness],
) -> Found:
    if isinstance(checkpoint, RegistryError):
        return Found(_bare(located.name, located.path), None, checkpoint, _UNKNOWN)
    return Found(
        checkpoint,
        covering.declaration if covering else None,
        _problem(covering),
        judge_now(checkpoint),
    )


def _kept(found: list[Found], at_root: DeclarationFile | None) -> list[Found]:
    """Leave out the versions that are older than ``[registry] keep`` says."""
    keep = at_root.registry.keep if at_root else ""
    whole = (
        one.checkpoint
        for one in found
        if one.declaration and not one.problem and one.completeness.state == "complete"
    )
    out = left_out(whole, keep)
    return [one for one in found if one.checkpoint.name not in out] if out else found


def _problem(covering: DeclarationFile | None) -> PrewarmError | None:
    if covering is None:
        return None
    if covering.problem is not None:
        return covering.problem
    if covering.declaration is None:
        return None
    waiting = covering.declaration.not_yet()
    if waiting:
        lines = "; ".join(f"{covering.label}: {line}" for line in waiting)
        return ConfigError(lines, code="not_yet")
    try:
        covering.declaration.source_directories()
    except ConfigError as error:
        return error
    return None


def _lost_declarations(tree: DeclarationTree, told: set[Path], root: Path) -> Iterator[Found]:
    """Yield the files that are wrong, or cover nothing though they must, and concern no checkpoint.

    They are told under their own name, so that a slip in a file is never passed over in silence.
    """
    for file in tree.files():
        if file.file in told:
            continue
        problem: PrewarmError | None = file.problem
        if problem is None and file.match == ():
            problem = RegistryError(
                f"{file.label}: [model] has no `match`, so it covers its own directory, but no "
                'checkpoint lies there; put one there, or write match = "*" for those below'
            )
        if problem is None:
            continue
        directory = file.file.parent
        if file.match == () and directory != root:  # the name that the checkpoint will have
            bare = _bare(directory.relative_to(root).as_posix(), directory)
        else:
            bare = _bare(file.label, file.file)
        yield Found(bare, None, problem, _UNKNOWN)


def _bare(name: str, path: Path) -> Checkpoint:
    return Checkpoint(name=name, path=path, aliases=(), files=(), newest_mtime_s=0.0)

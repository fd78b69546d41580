"""The private tree of a deployment: ``D/<digest of the bundles>/{inductor,triton,shim}``.

Owns filling, checking and repairing one tree. Which tree is the current one, and removing old ones,
is ``current.py``'s.

- A tree is filled beside its name and renamed, so one that has its name was whole.
- A tree that looks right is only looked at, without a lock and without a write.
- A listed file that is missing or changed is put back; what the deployment added stays.
- Two hooks at once: one works under ``D/.lock``, the other waits and finds the tree right.
- Nothing is synced: after a power cut the tree is repaired or filled again, not recovered.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from prewarm.deploy.listing import (
    Listing,
    Written,
    changed_files,
    file_digest,
    is_readable,
    read_listing,
    write_listing,
    written,
)
from prewarm.deploy.usable import require_usable
from prewarm.errors import NoSpace, NotWarm, StoreCorrupt
from prewarm.store.leases import leased
from prewarm.store.torchside_copy import copy_torchside, torchside_digest
from prewarm.store.triton_groups import point_groups
from prewarm.store.whole_file import make_directory, remove_parts, write_errors

LOCK = ".lock"
#: Hidden names of trees on their way: ``.filling-<random>``.
FILLING = ".filling-"

#: The directories of a tree that are caches of torch and of triton.
CACHES = ("inductor", "triton")
SHIM = "shim"

#: Room for directories and partly used blocks, for each file of a bundle.
_BLOCK_BYTES = 4096


@dataclass(frozen=True, slots=True)
class BundleFile:
    """A bundle that a trusted manifest names, and the cache directory below which it is found.

    Where it must be brought there first, ``prepare`` is told how.
    """

    sha256: str
    size_bytes: int
    unpacked_bytes: int
    files: int
    cache_dir: Path


@dataclass(frozen=True, slots=True)
class Prepared:
    """A tree that is right; ``put_back`` counts the files that had to be repaired."""

    tree: Path
    filled: bool
    put_back: int


#: Has bundles where they are looked for, for as long as its block lasts.
AtHand = Callable[[Sequence[BundleFile]], AbstractContextManager[None]]


def _lie_there(_: Sequence[BundleFile]) -> AbstractContextManager[None]:
    return nullcontext()


def prepare(into: Path, bundles: Sequence[BundleFile], *, at_hand: AtHand = _lie_there) -> Prepared:
    """Make the tree of these bundles right below ``into``, in the least work that does it.

    Raises:
        NotWarm: a bundle is not what its digest promises (code "corrupt"), or cannot be had.
        NoSpace: it does not fit.
        NotWritable: the directory cannot be written, or code cannot be loaded from it.
    """
    unique = tuple({bundle.sha256: bundle for bundle in bundles}.values())
    tree = into / tree_name(unique)
    least_files = max(bundle.files for bundle in unique)
    torchside = torchside_digest()
    listing = read_listing(tree, least_files=least_files)
    if listing is not None and listing.torchside == torchside and _looks_right(tree, listing):
        require_usable(tree, CACHES, listing.files)
        return Prepared(tree, filled=False, put_back=0)
    make_directory(into)
    with _lock(into), write_errors(tree):
        _remove_dead_fillings(into)
        listing = read_listing(tree, least_files=least_files)
        if not tree.is_dir():
            _fill(into, tree, unique, torchside, at_hand)
            return Prepared(tree, filled=True, put_back=0)
        remove_parts(tree)
        put_back = _repair(into, tree, unique, listing, torchside, at_hand)
        return Prepared(tree, filled=False, put_back=put_back)


def tree_name(bundles: Sequence[BundleFile]) -> str:
    """Return the name of the tree that holds exactly these bundles."""
    digests = sorted({bundle.sha256 for bundle in bundles})
    if len(digests) == 1:
        return digests[0][:32]
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()[:32]


def _looks_right(tree: Path, listing: Listing) -> bool:
    # A cache that no bundle fills has no file in the listing, and torch writes there all the same.
    caches = (tree / name for name in CACHES)
    real = all(cache.is_dir() and not cache.is_symlink() for cache in caches)
    return real and not changed_files(tree, listing)


def _fill(
    into: Path, tree: Path, bundles: Sequence[BundleFile], torchside: str, at_hand: AtHand
) -> None:
    # Room is looked for before anything is fetched.
    with _filling(into, bundles) as filling, at_hand(bundles):
        files = _unpack_all(filling, tree, bundles)
        write_listing(filling, Listing(tuple(b.sha256 for b in bundles), torchside, files))
        filling.rename(tree)
    require_usable(tree, CACHES, files)


def _repair(
    into: Path,
    tree: Path,
    bundles: Sequence[BundleFile],
    listing: Listing | None,
    torchside: str,
    at_hand: AtHand,
) -> int:
    """Put back what is missing or changed and return how many files that were."""
    known = dict(listing.files) if listing is not None else {}
    wrong = set(changed_files(tree, listing)) if listing is not None else set()
    # A file that was written anew with the same content only has another time.
    for name in tuple(wrong):
        if (same := _as_listed(tree / name, known[name])) is not None:
            known[name] = same
            wrong.discard(name)
    if listing is None or listing.torchside != torchside or wrong:
        with _filling(into, bundles) as filling, at_hand(bundles):
            fresh = _unpack_all(filling, tree, bundles)
            for name, file in fresh.items():
                same = known.get(name) if name not in wrong else None
                if same is not None and same.sha256 == file.sha256:
                    continue
                if listing is None and (found := _as_listed(tree / name, file)) is not None:
                    known[name] = found
                    continue
                wrong.add(name)
                _make_parents(tree, name)
                _clear(tree / name)
                (filling / name).rename(tree / name)
                known[name] = file
            known = {name: known[name] for name in fresh}
    _make_caches(tree)
    write_listing(tree, Listing(tuple(b.sha256 for b in bundles), torchside, known))
    require_usable(tree, CACHES, known)
    return len(wrong)


def _as_listed(path: Path, file: Written) -> Written | None:
    """Return how a file stands on disk if its content is the listed one."""
    try:
        found = path.lstat()
        if not is_readable(found.st_mode) or found.st_size != file.size_bytes:
            return None
        return written(path, file.sha256) if file_digest(path) == file.sha256 else None
    except OSError:
        return None


def _unpack_all(into: Path, tree: Path, bundles: Sequence[BundleFile]) -> dict[str, Written]:
    """Unpack all bundles and the shim for ``tree``; of a name that two hold, the first stays."""
    # tarfile and zstandard are not needed where a tree is right.
    from prewarm.store.bundle import ListedFile, bundle_path, unpack

    listed: list[ListedFile] = []
    with leased([(bundle.cache_dir, bundle.sha256) for bundle in bundles]):
        for bundle in bundles:
            path = bundle_path(bundle.cache_dir, bundle.sha256)
            sha256, size_bytes, earlier = bundle.sha256, bundle.size_bytes, tuple(listed)
            try:
                listed += unpack(path, into, sha256=sha256, size_bytes=size_bytes, earlier=earlier)
            except StoreCorrupt as error:
                # For a deployment a bundle of no use is no bundle.
                raise NotWarm(f"{error}; {_mending(error)}", code=error.code) from error
    files = {file.name: written(into / file.name, file.sha256) for file in listed}
    files |= {name: written(into / name) for name in point_groups(into, tree)}
    copy_torchside(into / SHIM)
    for path in sorted((into / SHIM).rglob("*.py")):
        files[str(path.relative_to(into))] = written(path)
    _make_caches(into)
    return files


def _mending(error: StoreCorrupt) -> str:
    if isinstance(error.__cause__, PermissionError):
        return f"give user {os.geteuid()} read access to it"
    return "the builder builds it again with its next `prewarm scan`"


# -- directories


@contextmanager
def _filling(into: Path, bundles: Sequence[BundleFile]) -> Iterator[Path]:
    """Yield a hidden directory beside the trees, which is gone afterwards unless it was renamed."""
    _require_room(into, bundles)
    filling = into / f"{FILLING}{secrets.token_hex(8)}"
    filling.mkdir()
    try:
        filling.chmod(0o755)
        yield filling
    finally:
        shutil.rmtree(filling, ignore_errors=True)


def _make_caches(tree: Path) -> None:
    for name in CACHES:
        _make_parents(tree, name + "/.")


def _make_parents(tree: Path, name: str) -> None:
    """Make the directories above a file, replacing whatever stands in their place."""
    place = tree
    for part in name.split("/")[:-1]:
        place = place / part
        if place.is_symlink() or not place.is_dir():
            with suppress(FileNotFoundError):
                place.unlink()
            place.mkdir()
            place.chmod(0o755)


def _clear(path: Path) -> None:
    """Take a directory away that stands where a file must; a file is replaced by rename."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)


def _remove_dead_fillings(into: Path) -> None:
    # Whoever fills holds the lock that we hold now.
    for path in into.glob(FILLING + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _require_room(into: Path, bundles: Sequence[BundleFile]) -> None:
    needed = sum(bundle.unpacked_bytes + bundle.files * _BLOCK_BYTES for bundle in bundles)
    found = os.statvfs(into)
    free = found.f_bavail * found.f_frsize
    # A file system that reports no size at all (some FUSE) cannot be judged beforehand.
    if found.f_blocks and free < needed:
        raise NoSpace(
            f"{into}: {needed:,} bytes are needed and {free:,} are free; "
            "free some space there or choose another directory with --into"
        )


@contextmanager
def _lock(into: Path) -> Iterator[None]:
    """Hold ``D/.lock``; the kernel lets go when a hook dies."""
    with write_errors(into / LOCK):
        descriptor = os.open(into / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with suppress(OSError):  # whatever the umask; it may be another user's
        os.fchmod(descriptor, 0o644)
    try:
        # A file system without locks leaves two hooks to fill twice; the renames keep it right.
        with suppress(OSError) if _lockless(descriptor) else write_errors(into / LOCK):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _lockless(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
    return False

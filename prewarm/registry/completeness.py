"""Whether a checkpoint is all there: complete, still being written, or broken.

Owns the judgement. A file can only be judged by its structure (a safetensors header covers its
file, a zip has its directory, an index names its shards) and by quiet: what is not whole but
changed a moment ago is being written; what is not whole and quiet is broken. Reads no weights.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, BinaryIO, Literal

from prewarm.registry.checkpoint import Checkpoint, CheckpointFile
from prewarm.registry.safetensors_header import read_header
from prewarm.registry.scan_memory import ScanMemory

ZIP_SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".pt2")

#: JSON that a loader reads first; cut in half it fails with a message about a comma.
_CONFIGS = ("config.json", "model_index.json")
_MAX_JSON_BYTES = 64 << 20

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})(?P<suffix>\.\w+)")

#: A time further ahead of this clock than this says nothing about a copy under way.
_SKEW_S = 3600.0

_ZIP_END = b"PK\x05\x06"
_ZIP_END_BYTES, _ZIP_COMMENT_BYTES = 22, 65535


@dataclass(frozen=True, slots=True)
class Completeness:
    """The judgement; ``reason`` is one line for anything but complete."""

    state: Literal["complete", "settling", "broken"]
    reason: str | None


def judge(
    checkpoint: Checkpoint, *, now_s: float, settle_s: float, memory: ScanMemory | None = None
) -> Completeness:
    """Judge a checkpoint by the structure of its files and by how long it has been quiet.

    With a memory, files that were whole are read again only when they changed.
    """
    faults = [*checkpoint.faults, *_structural_faults(checkpoint, memory, now_s)]
    if faults:
        # A download beside the files explains what is missing. It does not unsettle what is whole:
        # a cache's new revision arrives beside the old ones.
        newest_s = max(checkpoint.newest_mtime_s, checkpoint.unfinished_mtime_s)
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        if _is_quiet(now_s - newest_s, settle_s):
            return Completeness("broken", f"{faults[0]}{more}")
        return Completeness("settling", f"still being written: {faults[0]}{more}")
    quiet_s = now_s - checkpoint.newest_mtime_s
    if not _is_quiet(quiet_s, settle_s):
        return Completeness(
            "settling",
            f"changed {max(0.0, quiet_s):.1f} s ago; it is taken up when quiet for {settle_s:g} s",
        )
    return Completeness("complete", None)


def _structural_faults(
    checkpoint: Checkpoint, memory: ScanMemory | None, now_s: float
) -> tuple[str, ...]:
    if memory is not None and memory.knows_whole(checkpoint):
        return ()
    found = (*_missing_shards(checkpoint), *_faulty_files(checkpoint))
    if memory is not None and not found:
        memory.keep_whole(checkpoint, now_s=now_s)
    return found


def _is_quiet(quiet_s: float, settle_s: float) -> bool:
    return quiet_s >= settle_s or quiet_s < -_SKEW_S


def _missing_shards(checkpoint: Checkpoint) -> Iterator[str]:
    present = {file.name for file in checkpoint.files}
    told: set[str] = set()
    for index, shard in (*_shards_of_indexes(checkpoint), *_shards_by_number(present)):
        if shard not in present and shard not in told:
            told.add(shard)
            yield f"{shard} is missing (named in {index}); copy it again"


def _shards_of_indexes(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    for file in checkpoint.files:
        if not file.name.endswith(".index.json"):
            continue
        weight_map = _json_of(file).get("weight_map")
        if isinstance(weight_map, dict):
            beside = PurePosixPath(file.name).parent
            for shard in sorted({str(shard) for shard in weight_map.values()}):
                yield file.name, (beside / shard).as_posix()


def _shards_by_number(present: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the shards that the name of one implies, for a copy whose index has not come yet."""
    for name in sorted(present):
        shard = _SHARD.fullmatch(name)
        if shard and shard["suffix"] in (".safetensors", ".bin"):
            for number in range(1, int(shard["total"]) + 1):
                yield name, f"{shard['stem']}-{number:05d}-of-{shard['total']}{shard['suffix']}"


def _faulty_files(checkpoint: Checkpoint) -> Iterator[str]:
    for file in checkpoint.files:
        try:
            fault = _fault(file)
        except FileNotFoundError:
            fault = "is gone, or links to nothing; copy the file again"
        except OSError as error:
            fault = f"cannot be read ({error.strerror}); allow reading"
        if fault:
            yield f"{file.name}: {fault}"


def _fault(file: CheckpointFile) -> str | None:
    base = PurePosixPath(file.name)
    if base.suffix == ".safetensors":
        return read_header(file.path).fault
    if base.suffix in ZIP_SUFFIXES:
        return _fault_of_zip(file)
    if base.name in _CONFIGS or base.name.endswith(".index.json"):
        return _fault_of_json(file)
    return None


def _fault_of_zip(file: CheckpointFile) -> str | None:
    """Judge a file that may be a zip; another kind has no end that could be looked for."""
    if file.size_bytes == 0:
        return "is empty; copy it again"
    with file.path.open("rb") as stream:
        first = stream.read(8)
        if first == bytes(8):
            return "starts with zeros, so it was preallocated and never written; copy it again"
        if first == b"version ":
            return "is a Git LFS pointer, not the weights; run `git lfs pull`"
        if first.startswith(b"PK\x03\x04") and not _has_zip_end(stream):
            return f"is cut off after {file.size_bytes:,} bytes; copy it again"
    return None


def _has_zip_end(stream: BinaryIO) -> bool:
    size_bytes = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size_bytes - _ZIP_END_BYTES))
    if stream.read(4) == _ZIP_END:
        return True
    stream.seek(max(0, size_bytes - _ZIP_END_BYTES - _ZIP_COMMENT_BYTES))
    return _ZIP_END in stream.read()


def _fault_of_json(file: CheckpointFile) -> str | None:
    if file.size_bytes > _MAX_JSON_BYTES:
        return f"is over {_MAX_JSON_BYTES:,} bytes, no configuration is that long; replace it"
    try:
        data = json.loads(file.path.read_bytes())
    except (ValueError, RecursionError):
        return f"is no valid JSON ({file.size_bytes:,} bytes are there); copy it again"
    return None if isinstance(data, dict) else "holds no table; replace it"


def _json_of(file: CheckpointFile) -> dict[str, Any]:
    if file.size_bytes > _MAX_JSON_BYTES:
        return {}
    try:
        data = json.loads(file.path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}  # told by `_faulty_files`
    return data if isinstance(data, dict) else {}

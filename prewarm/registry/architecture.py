"""The digest of what shapes a model's graph, without the values of its weights.

Owns the choice of what counts: configuration keys that matter; names, dtypes and shapes of tensors;
source code; and the names of what the declaration loads. The same model at another place, written
at another time or cut into other shards has the same architecture.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

from prewarm.errors import RegistryError
from prewarm.registry.checkpoint import Checkpoint, CheckpointFile
from prewarm.registry.declaration import Declaration
from prewarm.registry.exported_program import exported_facts
from prewarm.registry.names import CONFIGS
from prewarm.registry.pickle_file import read_tensors
from prewarm.registry.safetensors_header import read_header
from prewarm.registry.source import source_files
from prewarm.registry.tensor import Tensor

FORMAT = 1

#: Keys that say where a model came from or how its outputs are called.
_IDLE_KEYS = {
    "_name_or_path", "transformers_version", "_diffusers_version", "_commit_hash", "id2label",
    "label2id", "task_specific_params", "finetuning_task", "name_or_path", "_from_model_config",
    "base_model_name_or_path", "revision",
}  # fmt: skip

_MAX_CONFIG_BYTES = 16 << 20

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


def architecture_digest(checkpoint: Checkpoint, declaration: Declaration) -> str:
    """Return the sha256 of everything but weight values that shapes the graph.

    Raises:
        RegistryError: a file of weights cannot be read, or is no weights-only file.
        ConfigError: a directory of ``path`` does not exist.

    """
    model = declaration.model
    facts = {
        "format": FORMAT,
        "loader": model.loader,
        "class": model.class_,
        "factory": model.factory,
        "setup": model.setup,
        "kwargs": model.kwargs,
        "configs": _configs(checkpoint),
        "tensors": _tensors(checkpoint, declaration),
        "exported": _exported(checkpoint, declaration),
        "source": _source(checkpoint, declaration),
    }
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _configs(checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        file.name: _config(checkpoint, file)
        for file in checkpoint.files
        if PurePosixPath(file.name).name in CONFIGS
    }


def _config(checkpoint: Checkpoint, file: CheckpointFile) -> Any:
    raw = _bytes(checkpoint, file, _MAX_CONFIG_BYTES)
    if not file.name.endswith(".json"):
        return hashlib.sha256(raw).hexdigest()
    try:
        return _without_idle_keys(json.loads(raw))
    except (ValueError, RecursionError) as error:
        raise RegistryError(
            f"{checkpoint.name}: {file.name} is no valid JSON; copy it again"
        ) from error


def _without_idle_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_idle_keys(below) for key, below in value.items() if key not in _IDLE_KEYS
        }
    if isinstance(value, list):
        return [_without_idle_keys(below) for below in value]
    return value


def _tensors(checkpoint: Checkpoint, declaration: Declaration) -> list[list[Any]]:
    """Return each tensor's directory, name, dtype and shape, however they are cut into files."""
    if declaration.model.weights == "random":
        return []
    found: set[tuple[str, Tensor]] = set()
    for file in weight_files(checkpoint, declaration):
        beside = PurePosixPath(file.name).parent.as_posix()
        found |= {(beside, tensor) for tensor in _tensors_of(checkpoint, file, declaration)}
    return sorted([place, one.name, one.dtype, list(one.shape)] for place, one in found)


def weight_files(checkpoint: Checkpoint, declaration: Declaration) -> tuple[CheckpointFile, ...]:
    """Return the files that the loader reads weights from, as far as that is known.

    transformers and diffusers take safetensors where there are some, and pickles only by their
    usual names, so that an optimizer's state or training arguments beside them are not read.
    """
    named = declaration.model.state_dict
    if named:
        return tuple(file for file in checkpoint.files if file.name == named)
    safetensors = tuple(file for file in checkpoint.files if file.name.endswith(".safetensors"))
    pickles = tuple(file for file in checkpoint.files if file.name.endswith(_PICKLES))
    if declaration.model.loader in ("transformers", "diffusers"):
        usual = ("pytorch_model", "diffusion_pytorch_model", "model", "adapter_model")
        return safetensors or tuple(
            file for file in pickles if PurePosixPath(file.name).name.startswith(usual)
        )
    return (*safetensors, *pickles)


def _tensors_of(
    checkpoint: Checkpoint, file: CheckpointFile, declaration: Declaration
) -> tuple[Tensor, ...]:
    try:
        if file.name.endswith(".safetensors"):
            header = read_header(file.path)
            if header.fault:
                raise RegistryError(f"{checkpoint.name}: {file.name}: {header.fault}")
            return header.tensors
        return _tensors_of_pickle(checkpoint, file, declaration)
    except OSError as error:
        raise _unreadable(checkpoint, file, error) from error


def _tensors_of_pickle(
    checkpoint: Checkpoint, file: CheckpointFile, declaration: Declaration
) -> tuple[Tensor, ...]:
    try:
        return read_tensors(file.path, name=f"{checkpoint.name}: {file.name}")
    except RegistryError:
        if declaration.model.loader in ("python", "command", "export"):
            # Whoever writes the loading may load what he likes; the proof finds out what it shapes.
            return (Tensor(f"{file.name} (unread)", "bytes", ()),)
        raise


def _source(checkpoint: Checkpoint, declaration: Declaration) -> list[list[str]]:
    """Return name and sha256 of every source file; names are relative: places do not count."""
    listed = [
        ["checkpoint", file.name, _sha256(checkpoint, file)]
        for file in checkpoint.files
        if file.name.endswith(".py")
    ]
    for directory in declaration.source_directories():
        listed += [
            ["path", name, hashlib.sha256(text).hexdigest()]
            for name, text in source_files(directory, label=declaration.label)
        ]
    return sorted(listed)


def _sha256(checkpoint: Checkpoint, file: CheckpointFile) -> str:
    return hashlib.sha256(_bytes(checkpoint, file, _MAX_CONFIG_BYTES)).hexdigest()


def _bytes(checkpoint: Checkpoint, file: CheckpointFile, limit_bytes: int) -> bytes:
    try:
        with Path(file.path).open("rb") as stream:
            raw = stream.read(limit_bytes + 1)
    except OSError as error:
        raise _unreadable(checkpoint, file, error) from error
    if len(raw) > limit_bytes:
        raise RegistryError(
            f"{checkpoint.name}: {file.name} is over {limit_bytes:,} bytes; replace it"
        )
    return raw


def _unreadable(checkpoint: Checkpoint, file: CheckpointFile, error: OSError) -> RegistryError:
    if isinstance(error, FileNotFoundError):
        return RegistryError(
            f"{checkpoint.name}: {file.name} vanished while it was read; the next scan looks again",
            code="changed",
        )
    return RegistryError(
        f"{checkpoint.name}: {file.name} cannot be read ({error.strerror}); allow reading"
    )


def _exported(checkpoint: Checkpoint, declaration: Declaration) -> list[dict[str, Any]]:
    if declaration.model.loader != "export":
        return []
    return [exported_facts(file) for file in checkpoint.files if file.name.endswith(".pt2")]

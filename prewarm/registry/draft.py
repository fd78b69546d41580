"""A first ``prewarm.toml`` for a checkpoint, guessed from what lies in it.

Owns the guesses and the text. What cannot be guessed is a placeholder with a comment that says so;
the text always parses with our own reader.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prewarm.errors import RegistryError
from prewarm.registry.checkpoint import Checkpoint, list_checkpoint
from prewarm.registry.exported_program import ExportedInput, exported_inputs
from prewarm.registry.pickle_file import read_tensors
from prewarm.registry.safetensors_header import read_header

#: The Auto class for the end of an architecture's name; anything else is a bare AutoModel.
_AUTO_CLASSES = (
    ("ForCausalLM", "AutoModelForCausalLM"),
    ("LMHeadModel", "AutoModelForCausalLM"),
    ("ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
    ("ForSequenceClassification", "AutoModelForSequenceClassification"),
    ("ForTokenClassification", "AutoModelForTokenClassification"),
    ("ForQuestionAnswering", "AutoModelForQuestionAnswering"),
    ("ForMaskedLM", "AutoModelForMaskedLM"),
    ("ForImageClassification", "AutoModelForImageClassification"),
    ("ForSpeechSeq2Seq", "AutoModelForSpeechSeq2Seq"),
)

_DTYPES = ("bfloat16", "float16", "float32", "float64")


@dataclass(slots=True)
class _Draft:
    """What was guessed, with a remark for each guess that a person must look at."""

    loader: str
    lines: list[str] = field(default_factory=list)
    dtype: str = ""
    shapes: list[str] = field(default_factory=list)
    sizes: str = ""


def draft_declaration(checkpoint_dir: Path, *, device: str | None = None) -> str:
    """Return the text of a first declaration for the checkpoint at a directory or ``.pt2`` file.

    ``device`` defaults to "cuda" where an NVIDIA driver is loaded, else "cpu".

    Raises:
        RegistryError: nothing that could be loaded lies there.

    """
    path = checkpoint_dir.resolve()
    if not path.exists():
        raise RegistryError(f"{checkpoint_dir} does not exist; name a checkpoint's directory")
    root = path if path.is_dir() else path.parent
    checkpoint = list_checkpoint(path, name=path.name, root=_widest(root))
    return _text(_guess(checkpoint), device or _present_device())


def _widest(root: Path) -> Path:
    """Return the cache around a Hugging Face snapshot, so that its links are inside."""
    inside = root.parent.name == "snapshots" and root.parent.parent.name.startswith("models--")
    return root.parent.parent if inside else root


def _present_device() -> str:
    return "cuda" if Path("/proc/driver/nvidia/version").exists() else "cpu"


def _guess(checkpoint: Checkpoint) -> _Draft:
    names = [file.name for file in checkpoint.files]
    if "model_index.json" in names:
        return _diffusers(checkpoint)
    if "config.json" in names:
        return _transformers(checkpoint)
    exported = [file for file in checkpoint.files if file.name.endswith(".pt2")]
    if exported:
        return _exported(exported_inputs(exported[0]))
    weights = [name for name in names if name.endswith((".safetensors", ".pt", ".pth", ".bin"))]
    if weights:
        return _torch(checkpoint, weights)
    raise RegistryError(
        f"{checkpoint.path}: holds no config.json, no .pt2 and no weights; "
        "name the directory of one checkpoint"
    )


def _transformers(checkpoint: Checkpoint) -> _Draft:
    config = _json(checkpoint, "config.json")
    architectures = config.get("architectures") or [""]
    draft = _Draft("transformers", [f'class = "{_auto_class(str(architectures[0]))}"'])
    draft.dtype = _declared_dtype(config) or _stored_dtype(checkpoint)
    vision = config.get("vision_config") if not config.get("vocab_size") else None
    image = vision if isinstance(vision, dict) else config
    if image.get("image_size") and not config.get("vocab_size"):
        size = image["image_size"]
        height, width = size if isinstance(size, list) else (size, size)
        channels = image.get("num_channels", 3)
        draft.shapes = [_tensor("pixel_values", draft.dtype or "float32", channels, height, width)]
        draft.sizes = "{ batch = [1, 8] }"
        return draft
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    vocabulary = config.get("vocab_size") or (text or {}).get("vocab_size") or 1000
    draft.shapes = [
        f'inputs.input_ids = {{ dtype = "int64", shape = ["batch", "seq"], high = {vocabulary} }}',
        'inputs.attention_mask = { dtype = "int64", shape = ["batch", "seq"], fill = 1 }',
    ]
    longest = config.get("max_position_embeddings")
    seq = min(128, longest) if isinstance(longest, int) and longest > 0 else 128
    draft.sizes = f"{{ batch = [1, 8], seq = [{seq}] }}"
    return draft


def _diffusers(checkpoint: Checkpoint) -> _Draft:
    name = _json(checkpoint, "model_index.json").get("_class_name", "DiffusionPipeline")
    draft = _Draft(
        "diffusers", [f'class = "{name if str(name).isidentifier() else "DiffusionPipeline"}"']
    )
    draft.shapes = ['kwargs = { prompt = "a photograph of a cat" }']
    return draft


def _torch(checkpoint: Checkpoint, weights: list[str]) -> _Draft:
    return _Draft(
        "torch",
        [
            'factory = "package.module:function"   # edit: returns the module',
            '# path = ["src"]                       # where its source lies, beside this file',
            f"state_dict = {json.dumps(weights[0])}",
            "kwargs = {}                            # of the factory",
        ],
        dtype=_stored_dtype(checkpoint),
        shapes=[
            'args = [{ dtype = "float32", shape = ["batch", 8] }]   # edit: what the module takes'
        ],
        sizes="{ batch = [1, 8] }",
    )


def _exported(inputs: tuple[ExportedInput, ...]) -> _Draft:
    draft = _Draft("export")
    tensors: list[str] = []
    free: list[str] = []
    for one in inputs:
        shape = []
        for size in one.shape:
            if size is None:
                free.append(f"size_{len(free)}")
            shape.append(f'"{free[-1]}"' if size is None else str(size))
        tensors.append(f'{{ dtype = "{one.dtype}", shape = [{", ".join(shape)}] }}')
    draft.shapes = (
        [f"args = [{', '.join(tensors)}]"]
        if tensors
        else ['args = [{ dtype = "float32", shape = [1] }]   # edit']
    )
    if free:
        draft.sizes = "{ " + ", ".join(f"{name} = [8]" for name in free) + " }"
    return draft


def _tensor(name: str, dtype: str, *sizes: object) -> str:
    shape = ", ".join(str(size) for size in sizes)
    return f'inputs.{name} = {{ dtype = "{dtype}", shape = ["batch", {shape}] }}'


def _auto_class(architecture: str) -> str:
    return next((auto for end, auto in _AUTO_CLASSES if architecture.endswith(end)), "AutoModel")


def _declared_dtype(config: dict[str, Any]) -> str:
    stated = str(config.get("dtype") or config.get("torch_dtype") or "").removeprefix("torch.")
    return stated if stated in _DTYPES else ""


def _stored_dtype(checkpoint: Checkpoint) -> str:
    """Return the dtype that most stored values have, so that loading converts nothing."""
    counts: Counter[str] = Counter()
    for file in checkpoint.files:
        try:
            if file.name.endswith(".safetensors"):
                tensors = read_header(file.path).tensors
            elif file.name.endswith((".pt", ".pth", ".bin")):
                tensors = read_tensors(file.path)
            else:
                continue
        except (OSError, RegistryError):
            continue  # the scan tells what is wrong with it
        for tensor in tensors:
            if tensor.dtype in _DTYPES:
                size = 1
                for entry in tensor.shape:
                    size *= entry
                counts[tensor.dtype] += size
    return counts.most_common(1)[0][0] if counts else ""


def _json(checkpoint: Checkpoint, name: str) -> dict[str, Any]:
    file = checkpoint.file(name)
    try:
        data = json.loads(file.path.read_bytes()) if file else {}
    except (OSError, ValueError) as error:
        raise RegistryError(f"{name}: is no valid JSON; copy the checkpoint again") from error
    return data if isinstance(data, dict) else {}


_HEAD = """\
# How this checkpoint is built, compiled and called. It must say what the server does: the same
# class, dtype, grad mode and arguments of torch.compile.

[model]
# match = "*"           # in a directory above: every checkpoint below that fits
"""

_COMPILE = """\
grad = "inference"      # inference | no_grad | grad

[compile]
# The first mode is what the server asks for; the others are tried when memory or time runs out.
mode = ["max-autotune", "max-autotune-no-cudagraphs", "default"]
dynamic = false         # false: one graph for each size; or true, or "auto", as the server says

[[shapes]]
name = "main"
"""


def _text(draft: _Draft, device: str) -> str:
    lines = [f'loader = "{draft.loader}"', *draft.lines]
    if draft.dtype:
        lines.append(f'dtype = "{draft.dtype}"')
    else:
        lines.append('# dtype = "bfloat16"    # default: as it is stored')
    lines.append(f'device = "{device}"')
    calls = list(draft.shapes)
    if draft.sizes:
        calls.append(f"sizes = {draft.sizes}   # edit: the sizes that the server calls, in order")
    return _HEAD + "\n".join(lines) + "\n" + _COMPILE + "\n".join(calls) + "\n"

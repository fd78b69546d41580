"""Names that mean something in a registry: the declaration's file, and what is passed over.

Imports nothing: whoever looks at a registry without reading declarations starts here.
"""

from __future__ import annotations

#: The file that declares a model.
FILE_NAME = "prewarm.toml"

#: What a copy that is still under way calls its files.
UNFINISHED = (".incomplete", ".tmp", ".part", ".partial", ".aria2", ".crdownload", ".download")

#: Directories that hold no part of a checkpoint: caches, locks, and a Hugging Face cache's store.
PASSED_OVER = ("blobs", "__pycache__", "lost+found")

#: Files that loaders build a model from; all others (tokenizers, cards, metrics) shape no graph.
CONFIGS = (
    "config.json", "model_index.json", "scheduler_config.json", "adapter_config.json",
    "quantize_config.json", "quantization_config.json", "generation_config.json", "params.json",
    "model_config.json", "hparams.json", "hparams.yaml", "hyperparameters.json", "config.yaml",
)  # fmt: skip


def is_passed_over(name: str) -> bool:
    """Say whether a file or directory of that name is no part of any checkpoint."""
    return name.startswith(".") or name in PASSED_OVER or name.endswith(UNFINISHED)

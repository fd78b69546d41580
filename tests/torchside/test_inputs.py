"""Inputs are made from the declaration alone, equal in every process."""

from __future__ import annotations

import pytest
import torch

from prewarm.torchside.inputs import make_arguments
from prewarm.torchside.protocol import Refusal

IDS = {"dtype": "int64", "shape": ["batch", "seq"], "low": 5, "high": 9}


def test_equal_in_every_call() -> None:
    shape_set = {"inputs": {"ids": IDS, "x": {"dtype": "float16", "shape": ["batch", 3]}}}
    _, first = make_arguments(shape_set, {"batch": 2, "seq": 4}, "cpu")
    _, second = make_arguments(shape_set, {"batch": 2, "seq": 4}, "cpu")
    assert torch.equal(first["ids"], second["ids"])
    assert torch.equal(first["x"], second["x"])
    assert (first["ids"].shape, first["x"].dtype) == ((2, 4), torch.float16)
    assert int(first["ids"].min()) >= 5 and int(first["ids"].max()) < 9


def test_positional_nested_and_plain_values() -> None:
    mask = {"dtype": "bool", "shape": [2]}
    shape_set = {
        "args": [{"pair": [mask, mask]}, {"dtype": "float32", "shape": [1], "fill": 7}],
        "kwargs": {"scale": 2, "size": "$batch", "many": ["$batch", "text"]},
    }
    args, kwargs = make_arguments(shape_set, {"batch": 3}, "cpu")
    assert [tensor.dtype for tensor in args[0]["pair"]] == [torch.bool, torch.bool]
    assert float(args[1]) == 7.0
    assert kwargs == {"scale": 2, "size": 3, "many": [3, "text"]}


def test_memory_format_holds_for_images_only() -> None:
    shape_set = {
        "args": [{"dtype": "float32", "shape": [1, 3, 4, 4]}, {"dtype": "float32", "shape": [2]}]
    }
    (image, vector), _ = make_arguments(shape_set, {}, "cpu", "channels_last")
    assert image.is_contiguous(memory_format=torch.channels_last)
    assert vector.is_contiguous()


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(Refusal, match="float23"):
        make_arguments({"args": [{"dtype": "float23", "shape": [1]}]}, {}, "cpu")

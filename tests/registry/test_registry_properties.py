"""Properties of the registry's parsers: any bytes are read, or refused in one plain line."""

from __future__ import annotations

import io
import json
import pickle
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prewarm.errors import PrewarmError
from prewarm.plain_text import is_plain
from prewarm.registry.checkpoint import CheckpointFile
from prewarm.registry.declaration_file import read_declaration
from prewarm.registry.exported_program import ExportedInput, exported_inputs
from prewarm.registry.pickle_file import read_tensors
from prewarm.registry.safetensors_header import read_header

from ..properties import bounded, mutated
from .conftest import safetensors_bytes

DECLARATION = b"""\
[model]
match = "v*"
loader = "torch"
factory = "own:build"
state_dict = "weights.pt"
device = "cpu"
threads = 2
[compile]
mode = ["max-autotune", "default"]
dynamic = false
targets = [".", { at = "unet", fullgraph = true }]
[[shapes]]
name = "rows"
args = [{ dtype = "float32", shape = ["batch", 64], high = 3 }, [1, "$batch"]]
kwargs = { times = "$batch", how = "sum" }
sizes = { batch = [1, 8] }
"""

#: Words that a broken value may become.
_VALUES = st.sampled_from(
    (b"1", b"-1", b"1e999", b"nan", b"inf", b"true", b'""', b'"$"', b"[]", b"{}", b"[[[]]]", b"0x1",
     b"9" * 30, b'"\\u0000"', b'"\\uD800"', b"1979-05-27", b'"../.."', b'"a\\nb"', b"[{}]")
)  # fmt: skip


def _reads_or_refuses(raw: bytes, read: Callable[[Path], object]) -> None:
    with tempfile.NamedTemporaryFile(prefix="prewarm-test-", suffix=".toml") as file:
        file.write(raw)
        file.flush()
        try:
            read(Path(file.name))
        except PrewarmError as error:
            assert is_plain(str(error))
            assert len(str(error)) < 5000


def _calls(path: Path) -> None:
    declaration = read_declaration(path)
    declaration.calls()
    declaration.request()


@bounded
@given(mutated(DECLARATION))
def test_a_spoilt_declaration_is_read_or_refused(raw: bytes) -> None:
    _reads_or_refuses(raw, _calls)


@bounded
@given(st.integers(0, 12), _VALUES)
def test_any_value_of_a_declaration_is_read_or_refused(number: int, value: bytes) -> None:
    lines = DECLARATION.split(b"\n")
    at = [index for index, line in enumerate(lines) if b" = " in line][number]
    lines[at] = lines[at].partition(b" = ")[0] + b" = " + value
    _reads_or_refuses(b"\n".join(lines), _calls)


@bounded
@given(
    mutated(safetensors_bytes({"a.w": ("F32", [4, 4]), "b": ("BF16", [2])}))
    | st.binary(max_size=99)
)
def test_a_spoilt_safetensors_header_is_judged(raw: bytes) -> None:
    def read(path: Path) -> None:
        header = read_header(path)
        assert header.fault is None or is_plain(header.fault)
        assert header.fault is None or not header.tensors

    _reads_or_refuses(raw, read)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, bytes]:
    torch = pytest.importorskip("torch")
    made = {}
    for is_zip in (True, False):
        path = tmp_path_factory.mktemp("saved") / "weights.pt"
        state = {"a.w": torch.ones(2, 2), "b": torch.zeros(3, dtype=torch.int64)}
        torch.save(state, path, _use_new_zipfile_serialization=is_zip)
        made[is_zip] = path.read_bytes()
    return made


@bounded
@given(st.data(), st.booleans())
def test_spoilt_weights_of_torch_are_read_or_refused(
    saved: dict[bool, bytes], data: st.DataObject, is_zip: bool
) -> None:
    _reads_or_refuses(data.draw(mutated(saved[is_zip])), read_tensors)


#: Opcodes with short arguments, so that more than the first of them is met.
_OPCODES = st.lists(
    st.sampled_from([bytes([op]) for op in b"}](NtuaslRbcqrhjK"]).flatmap(
        lambda op: st.binary(max_size=3).map(lambda argument: op + argument)
    ),
    max_size=12,
)


@bounded
@given(st.binary(max_size=200) | _OPCODES.map(b"".join))
def test_any_pickle_is_read_or_refused(raw: bytes) -> None:
    _reads_or_refuses(b"\x80\x02" + raw + pickle.STOP, read_tensors)


_PROGRAM = json.dumps(
    {
        "graph_module": {
            "graph": {
                "tensor_values": {"x": {"dtype": 7, "sizes": [{"as_int": 8}, {"as_int": 64}]}}
            },
            "signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}]},
        }
    }
).encode()


def _exported(program: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("net/models/model.json", program)
        archive.writestr("net/data/weights/weight_0", b"w" * 64)
    return made.getvalue()


def _inputs(path: Path) -> None:
    exported_inputs(CheckpointFile("net.pt2", str(path), path.stat().st_size, 0, 0, 0))


def test_the_program_that_is_spoilt_below_is_read(tmp_path: Path) -> None:
    (tmp_path / "net.pt2").write_bytes(_exported(_PROGRAM))
    file = CheckpointFile("net.pt2", str(tmp_path / "net.pt2"), 0, 0, 0, 0)
    assert exported_inputs(file) == (ExportedInput("x", "float32", (8, 64)),)


@bounded
@given(mutated(_exported(_PROGRAM)) | mutated(_PROGRAM).map(lambda raw: _exported(raw)))
def test_a_spoilt_exported_program_is_read_or_refused(raw: bytes) -> None:
    _reads_or_refuses(raw, _inputs)


@bounded
@given(
    st.sampled_from(
        [b'"graph"', b'"dtype": 7', b'{"as_int": 8}', b'"user_input"', b'{"name": "x"}', b'"sizes"']
    ),
    st.sampled_from([b"1", b"null", b"[]", b"{}", b'"x"', b'"dtype": []', b'"graph": 1, "a"']),
)
def test_any_form_of_a_program_is_read_or_refused(old: bytes, new: bytes) -> None:
    _reads_or_refuses(_exported(_PROGRAM.replace(old, new)), _inputs)

from __future__ import annotations

import io
import json
import os
import zipfile

import pytest

from prewarm.registry.checkpoint import list_checkpoint
from prewarm.registry.completeness import Completeness, judge


def judged(registry, name: str = "m", *, quiet_s: float = 60.0) -> Completeness:
    checkpoint = list_checkpoint(registry.root / name, name=name, root=registry.root)
    return judge(checkpoint, now_s=checkpoint.newest_mtime_s + quiet_s, settle_s=2.0)


def test_whole_and_quiet_is_complete(registry):
    registry.bert("m")
    assert judged(registry) == Completeness("complete", None)


def test_whole_but_just_changed_is_settling(registry):
    registry.bert("m")
    found = judged(registry, quiet_s=0.5)
    assert found.state == "settling"
    assert found.reason == "changed 0.5 s ago; it is taken up when quiet for 2 s"


def test_a_copy_that_keeps_old_times_is_not_quiet_at_once(registry):
    path = registry.bert("m")
    for file in path.iterdir():
        os.utime(file, (1, 1))
    checkpoint = list_checkpoint(path, name="m", root=registry.root)
    assert checkpoint.newest_mtime_s > 1_000_000


def test_a_time_far_ahead_of_this_clock_does_not_settle_forever(registry):
    registry.bert("m")
    assert judged(registry, quiet_s=-1.0).state == "settling"
    assert judged(registry, quiet_s=-7200.0).state == "complete"


@pytest.mark.parametrize("quiet_s", [0.0, 60.0])
def test_truncated_safetensors(registry, quiet_s):
    path = registry.bert("m") / "model.safetensors"
    size = path.stat().st_size
    os.truncate(path, size - 10)
    found = judged(registry, quiet_s=quiet_s)
    fault = f"model.safetensors: {size - 10} of {size} bytes are there; copy it again"
    assert found.state == ("broken" if quiet_s else "settling")
    assert found.reason == (fault if quiet_s else f"still being written: {fault}")


def test_safetensors_cut_in_its_header(registry):
    path = registry.bert("m") / "model.safetensors"
    os.truncate(path, 20)
    reason = judged(registry).reason
    assert reason.startswith("model.safetensors: 20 bytes are there, its header alone takes ")


def test_preallocated_safetensors(registry):
    path = registry.bert("m") / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    assert "was preallocated and never written; copy it again" in judged(registry).reason


def test_preallocated_after_the_header(registry, safetensors):
    registry.bert("m")
    whole = safetensors({"w": ("F32", [256, 256])})
    length = 8 + int.from_bytes(whole[:8], "little")
    path = registry.write("m/model.safetensors", whole[:length])
    os.truncate(path, len(whole))
    with path.open("rb") as stream:
        if os.lseek(stream.fileno(), len(whole) - 1, os.SEEK_HOLE) == len(whole):
            pytest.skip("this file system does not tell holes")
    assert "its end was never written (preallocated)" in judged(registry).reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"abc", "ends after 3 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n", "is a Git LFS pointer"),
        ((1 << 40).to_bytes(8, "little") + b"x" * 100, "is no safetensors file"),
        (b"\x04" + bytes(7) + b"null", "it is no table"),
        (b"\x04" + bytes(7) + b"{{{{", "no table of tensors"),
    ],
)
def test_what_is_no_safetensors_file(registry, content, expected):
    registry.bert("m")
    registry.write("m/model.safetensors", content)
    found = judged(registry)
    assert found.state == "broken"
    assert expected in found.reason


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "do not fit its shape"),
        ({"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}, "unknown dtype 'F99'"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "has -1 where a count belongs"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "a gap or an overlap"),
        ({"dtype": "F32", "shape": [1]}, "has no dtype, shape and data_offsets"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}, "no table of tensors"),
    ],
)
def test_header_that_breaks_the_rules(registry, entry, expected):
    registry.bert("m")
    text = json.dumps({"w": entry}).encode()
    content = len(text).to_bytes(8, "little") + text + b"abcdefgh"
    registry.write("m/model.safetensors", content)
    assert expected in judged(registry).reason


def test_bytes_after_the_last_tensor(registry):
    path = registry.bert("m") / "model.safetensors"
    path.write_bytes(path.read_bytes() + b"x")
    assert "but its header covers" in judged(registry).reason


def sharded(registry, *present: int) -> None:
    registry.bert("m")
    (registry.root / "m/model.safetensors").unlink()
    names = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    registry.write("m/model.safetensors.index.json", json.dumps(index))
    registry.bert("shard")
    content = (registry.root / "shard/model.safetensors").read_bytes()
    for number in present:
        registry.write(f"m/{names[number - 1]}", content)


def test_all_shards_are_there(registry):
    sharded(registry, 1, 2, 3)
    assert judged(registry).state == "complete"


def test_missing_shard_is_named(registry):
    sharded(registry, 1, 3)
    assert judged(registry) == Completeness(
        "broken",
        "model-00002-of-00003.safetensors is missing (named in model.safetensors.index.json); "
        "copy it again",
    )
    assert judged(registry, quiet_s=1).state == "settling"


def test_missing_shards_are_counted(registry):
    sharded(registry)
    assert judged(registry).reason.endswith("(and 2 more)")


def test_missing_shard_is_seen_without_an_index(registry):
    sharded(registry, 1, 2)
    (registry.root / "m/model.safetensors.index.json").unlink()
    reason = judged(registry).reason
    assert reason.startswith("model-00003-of-00003.safetensors is missing (named in model-00001-")


def test_config_cut_in_half(registry):
    path = registry.bert("m") / "config.json"
    os.truncate(path, 10)
    assert judged(registry).reason == (
        "config.json: is no valid JSON (10 bytes are there); copy it again"
    )


def zip_bytes() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("archive/data.pkl", b"x" * 1000)
    return stream.getvalue()


def test_zip_without_its_end_is_cut_off(registry):
    content = zip_bytes()
    registry.write("m/model.pt", content)
    assert judged(registry).state == "complete"
    registry.write("m/model.pt", content[:-30])
    assert judged(registry).reason == (
        f"model.pt: is cut off after {len(content) - 30:,} bytes; copy it again"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (bytes(64), "starts with zeros"),
        (b"version https://x", "Git LFS pointer"),
    ],
)
def test_other_weights_that_are_not_there_yet(registry, content, expected):
    registry.write("m/model.pth", content)
    assert expected in judged(registry).reason


def test_a_download_beside_the_files_keeps_it_settling(registry):
    sharded(registry, 1, 3)
    checkpoint = list_checkpoint(registry.root / "m", name="m", root=registry.root)
    part = registry.write("m/.cache/huggingface/download/abc.incomplete", b"x")
    os.utime(part, (checkpoint.newest_mtime_s + 50, checkpoint.newest_mtime_s + 50))
    later = list_checkpoint(registry.root / "m", name="m", root=registry.root)
    now_s = checkpoint.newest_mtime_s + 51
    assert judge(checkpoint, now_s=now_s, settle_s=2).state == "broken"
    assert judge(later, now_s=now_s, settle_s=2).state == "settling"


def test_a_download_beside_a_whole_checkpoint_does_not_unsettle_it(registry):
    registry.bert("models--org--name/snapshots/old")
    name = "models--org--name/snapshots/old"
    checkpoint = list_checkpoint(registry.root / name, name=name, root=registry.root)
    part = registry.write("models--org--name/blobs/abc.incomplete", b"x")
    os.utime(part, (checkpoint.newest_mtime_s + 50, checkpoint.newest_mtime_s + 50))
    later = list_checkpoint(registry.root / name, name=name, root=registry.root)
    assert later.unfinished_mtime_s > later.newest_mtime_s
    assert judge(later, now_s=checkpoint.newest_mtime_s + 51, settle_s=2).state == "complete"


def test_a_file_that_vanishes_meanwhile_is_told(registry):
    path = registry.bert("m")
    checkpoint = list_checkpoint(path, name="m", root=registry.root)
    (path / "model.safetensors").unlink()
    found = judge(checkpoint, now_s=checkpoint.newest_mtime_s + 60, settle_s=2)
    assert found.reason == "model.safetensors: is gone, or links to nothing; copy the file again"

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from prewarm.errors import ManifestUnavailable
from prewarm.store.manifest import Manifest

Signed = dict[str, Any]


@pytest.fixture
def signed(record: Callable[..., dict[str, object]]) -> Signed:
    return {
        "format": 1,
        "builder": "gpu-1",
        "generation": 42,
        "generated_at": "2027-01-15T08:00:00.000Z",
        "version": "0.1.0",
        "environments": {"0123456789abcdef": {"torch": "2.13.0", "cxx": None}},
        "entries": [{**record(), "model": "minilm/v1", "aliases": ["minilm/latest"]}],
    }


def test_what_was_read_is_given_back(signed: Signed) -> None:
    manifest = Manifest.from_dict(signed)
    assert manifest.to_dict() == signed
    assert json.loads(json.dumps(manifest.to_dict())) == signed
    [entry] = manifest.entries
    assert (entry.model, entry.aliases, entry.bundle.files) == (
        "minilm/v1",
        ("minilm/latest",),
        2519,
    )
    assert entry.shape_sets[0].calls[1].sizes == {"batch": 2, "seq": 128}
    assert Manifest.from_dict(replace(manifest, generation=43).to_dict()).generation == 43


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def _tables(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all tables whose keys are fixed."""
    free = {"environments", "variables", "sizes", "proof"}
    found: list[tuple[str | int, ...]] = []
    if isinstance(value, dict):
        found.append(path)
        for name, below in value.items():
            if name not in free:
                found += _tables(below, (*path, name))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            found += _tables(below, (*path, number))
    return found


def test_each_missing_and_each_unknown_key_is_told(signed: Signed) -> None:
    for path in _tables(signed):
        for name in list(_at(signed, path)):
            if name == "format":
                continue
            broken = json.loads(json.dumps(signed))
            _at(broken, path)["surprise"] = _at(broken, path).pop(name)
            with pytest.raises(ManifestUnavailable) as caught:
                Manifest.from_dict(broken)
            assert f"{name}: is missing" in str(caught.value)
            assert "surprise: unknown key" in str(caught.value)


_WRONG: list[tuple[tuple[str | int, ...], Any]] = [
    (("builder",), ""),
    (("builder",), 5),
    (("generation",), -1),
    (("generation",), True),
    (("generation",), 1.5),
    (("generated_at",), "yesterday"),
    (("environments",), []),
    (("environments", "0123456789abcdef"), "torch"),
    (("environments", "0123456789abcdef", "torch"), 2.13),
    (("entries",), {}),
    (("entries", 0), "minilm"),
    (("entries", 0, "model"), None),
    (("entries", 0, "aliases"), "minilm/latest"),
    (("entries", 0, "aliases"), [5]),
    (("entries", 0, "environment"), "unknown"),
    (("entries", 0, "status"), "failed"),
    (("entries", 0, "status"), ["warm"]),
    (("entries", 0, "status"), "partial"),
    (("entries", 0, "bundle"), None),
    (("entries", 0, "bundle", "sha256"), "../../etc"),
    (("entries", 0, "bundle", "sha256"), "A" * 64),
    (("entries", 0, "bundle", "sha256"), "a" * 63),
    (("entries", 0, "bundle", "size_bytes"), "1"),
    (("entries", 0, "bundle", "files"), -1),
    (("entries", 0, "compile", "dynamic"), 1),
    (("entries", 0, "compile", "dynamic"), "yes"),
    (("entries", 0, "compile", "recompile_limit"), 1.5),
    (("entries", 0, "variables"), []),
    (("entries", 0, "variables", "X"), 1),
    (("entries", 0, "shape_sets"), None),
    (("entries", 0, "shape_sets", 0, "status"), "great"),
    (("entries", 0, "shape_sets", 0, "calls", 0), []),
    (("entries", 0, "shape_sets", 0, "calls", 0, "sizes"), []),
    (("entries", 0, "shape_sets", 0, "calls", 0, "sizes", "batch"), "8"),
    (("entries", 0, "shape_sets", 0, "calls", 0, "cold_s"), -1),
    (("entries", 0, "shape_sets", 0, "calls", 0, "cold_s"), float("inf")),
    (("entries", 0, "shape_sets", 0, "calls", 0, "cold_s"), "1"),
    (("entries", 0, "shape_sets", 0, "calls", 0, "graphs"), 1.0),
    (("entries", 0, "shape_sets", 0, "calls", 0, "graph_breaks"), [None]),
    (("entries", 0, "proof"), []),
]


@pytest.mark.parametrize(("path", "value"), _WRONG)
def test_a_wrong_value_is_told_with_its_field(
    signed: Signed, path: tuple[str | int, ...], value: Any
) -> None:
    _at(signed, path[:-1])[path[-1]] = value
    with pytest.raises(ManifestUnavailable) as caught:
        Manifest.from_dict(signed)
    told = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)[1:]
    # `partial` alone is a fine status; what lacks then is its reason.
    told = told.replace("status", "reason") if value == "partial" else told
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_all_issues_are_told_at_once_and_many_are_counted(signed: Signed) -> None:
    signed["builder"] = ""
    signed["entries"][0]["bundle"]["files"] = -1
    with pytest.raises(ManifestUnavailable, match=r"builder: .*; entries\[0\]\.bundle\.files: "):
        Manifest.from_dict(signed)
    signed["entries"] = ["x" * 10_000] * 500
    with pytest.raises(ManifestUnavailable, match=r"and \d+ more") as caught:
        Manifest.from_dict(signed)
    assert len(str(caught.value)) < 3000


@pytest.mark.parametrize("value", [None, 2, "1", [1]])
def test_an_unknown_format_is_refused_and_nothing_else_is_told(signed: Signed, value: Any) -> None:
    with pytest.raises(
        ManifestUnavailable, match=r"^format: found .*expected 1; upgrade"
    ) as caught:
        Manifest.from_dict({**signed, "format": value, "surprise": 1})
    assert "surprise" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [], "text", 5])
def test_what_is_no_table_is_refused(value: Any) -> None:
    with pytest.raises(ManifestUnavailable):
        Manifest.from_dict(value)


def test_a_model_stands_once_in_an_environment(signed: Signed) -> None:
    signed["entries"].append(signed["entries"][0])
    with pytest.raises(ManifestUnavailable, match="each model once an environment"):
        Manifest.from_dict(signed)

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

import pytest

from prewarm.errors import ConfigError
from prewarm.registry.scan import scan_registry


def by_name(registry) -> dict[str, object]:
    return {one.checkpoint.name: one for one in registry.scan()}


def test_one_file_covers_every_version_that_lands_later(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    registry.bert("minilm/v2")
    registry.bert("other/v1")
    found = by_name(registry)
    assert found["minilm/v1"].declaration.calls() == found["minilm/v2"].declaration.calls()
    assert (found["other/v1"].declaration, found["other/v1"].problem) == (None, None)


def test_the_nearest_file_that_covers_wins(registry, minilm):
    registry.write("prewarm.toml", minilm.replace("minilm/*", "**"))
    registry.write("a/prewarm.toml", minilm.replace("minilm/*", "v1"))
    registry.bert("a/v1")
    registry.bert("a/v2")
    found = by_name(registry)
    assert found["a/v1"].declaration.label == "a/prewarm.toml"
    assert found["a/v2"].declaration.label == "prewarm.toml"


@pytest.mark.parametrize("match", ["", 'match = "*"', 'match = "."', 'match = "**"'])
def test_a_file_beside_the_checkpoint_covers_it(registry, minilm, match):
    registry.bert("a")
    registry.write("a/prewarm.toml", minilm.replace('match = "minilm/*"', match))
    assert by_name(registry)["a"].declaration.label == "a/prewarm.toml"


def test_hugging_face_names_can_be_matched(registry, minilm):
    registry.write("prewarm.toml", minilm.replace("minilm/*", "org/name@*"))
    registry.bert("models--org--name/snapshots/abc")
    assert by_name(registry)["org/name@abc"].declaration


def test_exported_files_are_covered_with_their_directory(registry, python_model):
    text = python_model.replace('"python"', '"export"').replace('factory = "net:make"', "")
    registry.write("a/prewarm.toml", text)
    registry.write("a/m.pt2", b"PK")
    registry.write("b/1/m.pt2", b"PK")
    registry.write("c/m.pt2", b"PK")
    registry.write("b/prewarm.toml", text)
    registry.write("prewarm.toml", text.replace("[model]", '[model]\nmatch = "c"'))
    found = by_name(registry)
    assert set(found) == {"a/m.pt2", "b/1/m.pt2", "c/m.pt2"}
    assert all(one.declaration and one.problem is None for one in found.values())


def test_one_bad_file_never_stops_the_others(registry, minilm):
    registry.bert("a")
    registry.bert("b")
    registry.bert("c/1")
    own = minilm.replace('match = "minilm/*"', "")
    registry.write("a/prewarm.toml", own)
    registry.write("b/prewarm.toml", own.replace("dynamic", "dynmaic"))
    registry.write("c/prewarm.toml", "[model\n")
    found = by_name(registry)
    assert found["a"].problem is None
    assert str(found["b"].problem) == (
        "b/prewarm.toml:9: [compile] dynmaic: unknown key; did you mean `dynamic`?"
    )
    assert found["b"].declaration is None
    assert str(found["c/1"].problem).startswith("c/prewarm.toml:1: not valid TOML")
    assert found["c/1"].problem.code == "bad_declaration"


def test_a_bad_root_concerns_only_what_it_matches(registry, minilm):
    registry.write("prewarm.toml", minilm.replace("dynamic = false", ""))
    registry.bert("minilm/v1")
    registry.bert("other/v1")
    found = by_name(registry)
    assert "dynamic is not stated" in str(found["minilm/v1"].problem)
    assert found["other/v1"].problem is None


def test_a_faulty_file_that_concerns_no_checkpoint_is_told_under_its_own_name(registry, minilm):
    registry.write("prewarm.toml", "[registry]\nexclud = []")
    registry.write("a/prewarm.toml", "[")
    registry.bert("b")
    found = by_name(registry)
    assert set(found) == {"prewarm.toml", "a/prewarm.toml", "b"}
    assert "did you mean `exclude`?" in str(found["prewarm.toml"].problem)


def test_a_file_whose_checkpoint_is_not_there_is_told(registry, minilm):
    registry.write("prewarm.toml", minilm.replace('match = "minilm/*"', ""))
    registry.bert("minilm/v1")
    found = by_name(registry)
    assert found["minilm/v1"].declaration is None
    assert "prewarm.toml: [model] has no `match`, so it covers its own directory" in str(
        found["prewarm.toml"].problem
    )


def test_a_match_that_nothing_fits_yet_is_no_fault(registry, minilm):
    registry.write("prewarm.toml", minilm)
    assert registry.scan() == ()


def test_missing_path_is_a_problem_of_its_checkpoints(registry, python_model):
    registry.write("a/prewarm.toml", python_model.replace("[model]", '[model]\npath = ["src"]'))
    assert "a/prewarm.toml: [model] path: 'src' is no directory" in str(
        by_name(registry)["a"].problem
    )


def test_what_is_not_built_yet_is_a_problem_with_its_own_code(registry, minilm):
    registry.write(
        "prewarm.toml", minilm.replace("dynamic = false", "dynamic=false\nregional=true")
    )
    registry.bert("minilm/v1")
    problem = by_name(registry)["minilm/v1"].problem
    assert problem.code == "not_yet"
    assert str(problem).startswith("prewarm.toml: [compile] regional = true: not built yet")


def test_declared_but_settling(registry, minilm):
    registry.write("prewarm.toml", minilm)
    registry.bert("minilm/v1")
    (found,) = registry.scan(later_s=0.0, settle_s=30.0)
    assert found.completeness.state == "settling"


def test_a_registry_that_is_none(registry):
    with pytest.raises(ConfigError, match="does not exist; name the directory that holds your"):
        scan_registry(registry.root / "none", settle_s=0, now_s=0)
    with pytest.raises(ConfigError, match="is no directory"):
        scan_registry(registry.write("file"), settle_s=0, now_s=0)


def test_a_registry_behind_a_link(registry, tmp_path):
    registry.bert("a")
    (tmp_path / "link").symlink_to(registry.root)
    (found,) = scan_registry(tmp_path / "link", settle_s=0, now_s=0)
    assert (found.checkpoint.name, found.checkpoint.path) == ("a", registry.root / "a")


@pytest.fixture
def unprivileged():
    """Return a directory that a user who is not root scans, outside of root's temporary one."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    try:
        if os.geteuid() != 0:
            yield root
        else:
            os.seteuid(65534)
            try:
                yield root
            finally:
                os.seteuid(0)
    finally:
        for path in root.rglob("*"):
            path.chmod(0o755)
        shutil.rmtree(root)


def test_unreadable_directories_are_told_and_the_others_go_on(unprivileged):
    user, _ = os.geteuid(), os.seteuid(os.getuid())
    for name in ("a", "b/inner", "c"):
        (unprivileged / name).mkdir(parents=True)
        (unprivileged / name / "config.json").write_text("{}")
        (unprivileged / name / "pytorch_model.bin").write_bytes(b"x")
    (unprivileged / "b").chmod(0)
    (unprivileged / "c/pytorch_model.bin").chmod(0)
    os.seteuid(user)
    found = {
        one.checkpoint.name: one for one in scan_registry(unprivileged, settle_s=0, now_s=1e10)
    }
    assert set(found) == {"a", "b", "c"}
    assert found["a"].problem is None
    assert str(found["b"].problem) == (
        "b: cannot be read (Permission denied); allow reading or exclude it"
    )
    assert found["c"].completeness.state == "broken"
    assert found["c"].completeness.reason == (
        "pytorch_model.bin: cannot be read (Permission denied); allow reading"
    )


def test_files_that_vanish_meanwhile_do_no_harm(registry, minilm):
    registry.write("prewarm.toml", minilm)
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            registry.bert("minilm/v1")
            shutil.rmtree(registry.root / "minilm")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(600):
            assert len(registry.scan()) <= 1
    finally:
        stop.set()
        thread.join()

from __future__ import annotations

import pytest

from prewarm.store.manifest_text import canonical_json, paths_in, without_paths


def test_canonical_json_is_sorted_tight_and_utf_8() -> None:
    assert canonical_json({"b": [1, 1.5, None], "a": "ü"}) == '{"a":"ü","b":[1,1.5,null]}'.encode()


def test_canonical_json_refuses_what_is_no_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"a": float("nan")})


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("/usr/bin/g++", "…/g++"),
        ("/tmp", "…/tmp"),
        ("/root/", "…/root"),
        ("ran /usr/bin/g++ twice", "ran …/g++ twice"),
        ('File "/home/ann/my.py", line 3', 'File "…/my.py", line 3'),
        ("(/opt/a/b)", "(…/b)"),
        ("a=/opt/x:/opt/y", "a=…/x:…/y"),
        ("minilm/v1", "minilm/v1"),
        ("8/16 calls", "8/16 calls"),
        ("a / b", "a / b"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("n/a", "n/a"),
        ("../a/b", "../a/b"),
        ("", ""),
    ],
)
def test_absolute_paths_keep_their_last_part(text: str, cut: str) -> None:
    assert without_paths(text) == cut
    assert without_paths(cut) == cut
    assert list(paths_in(cut, "/root")) == []


def test_paths_are_cut_and_found_at_any_depth() -> None:
    value = {"/a/b": [{"c": ("/d/e", 1, None, True)}]}
    assert without_paths(value) == {"…/b": [{"c": ["…/e", 1, None, True]}]}
    assert list(paths_in(value, "/root")) == ["/a/b", "/d/e"]


def test_the_home_directory_is_found_inside_a_text() -> None:
    assert list(
        paths_in(["x=/home/ann/a", "of /home/ann", "minilm/home/ann", "/"], "/home/ann")
    ) == [
        "x=/home/ann/a",
        "of /home/ann",
        "/",
    ]
    assert list(paths_in(["a", "b/c"], "/")) == []
    assert list(paths_in(["a"], "")) == []

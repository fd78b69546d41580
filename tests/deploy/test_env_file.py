"""Env files: read back by sh and by systemd's own rules, whatever stands in the values."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from prewarm.deploy.env_file import env_text, merged_python_path, source_command
from prewarm.errors import ConfigError

AWKWARD = {
    "PLAIN": "/var/cache/prewarm",
    "SPACES": "/my models/a  b/",
    "QUOTES": 'it\'s "quoted"',
    "DOLLAR": "$HOME/${X}/$(id)",
    "BACKTICKS": "`id`",
    "BACKSLASH": "a\\b\\\\c\\$\\",
    "HASH": "# no comment ; nor this",
    "PERCENT": "%h %% %n",
    "UNICODE": "モデル/é",
    "EMPTY": "",
    "EQUALS": "a=b=c",
    "GLOB": "* ? [a] ~ !x",
}


def by_sh(text: str, tmp_path: Path, name: str) -> str:
    file = tmp_path / "env file"
    file.write_text(text)
    script = f'{source_command(file)}; exec printenv "{name}"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={})
    return done.stdout.decode().removesuffix("\n")


def by_systemd(text: str) -> dict[str, str]:
    """Read a text as systemd's parse_env_file does (src/basic/env-file.c), one state at a time."""
    found: dict[str, str] = {}
    state, key, value = "before key", "", ""
    for character in text + "\n":
        if state == "before key":
            if character in "#;":
                state = "comment"
            elif not character.isspace():
                state, key = "key", character
        elif state == "key":
            if character == "=":
                state, value = "before value", ""
            else:
                key += character
        elif state == "before value":
            if character == '"':
                state = "quoted"
            elif character == "\n":
                found[key], state = value, "before key"
            else:
                raise AssertionError(f"unquoted: {character!r}")
        elif state == "quoted":
            if character == '"':
                state = "before value"
            elif character == "\\":
                state = "escape"
            else:
                value += character
        elif state == "escape":
            state = "quoted"
            value += character if character in '"\\`$' else "\\" + character
        elif state == "comment":
            state = {"\n": "before key", "\\": "comment escape"}.get(character, "comment")
        elif state == "comment escape":
            state = "comment"
    assert state == "before key"
    return found


@pytest.mark.parametrize("name", AWKWARD)
def test_sh_reads_what_was_written(tmp_path: Path, name: str) -> None:
    text = env_text(AWKWARD, "systemd", comment="for a test")

    assert by_sh(text, tmp_path, name) == AWKWARD[name]


def test_systemd_reads_what_was_written() -> None:
    assert by_systemd(env_text(AWKWARD, "systemd", comment="for a test")) == AWKWARD


@pytest.mark.parametrize(
    "comment", ["ends with a backslash\\", "two\nlines", "X=1\r\nY=2", "é\udcff"]
)
def test_a_comment_takes_no_line_away_and_adds_none(tmp_path: Path, comment: str) -> None:
    text = env_text({"A": "1"}, "systemd", comment=comment)

    assert by_systemd(text) == {"A": "1"}
    assert by_sh(text, tmp_path, "A") == "1"


def test_without_variables_it_holds_a_comment_only() -> None:
    text = env_text({}, "systemd", comment="cold")

    assert text == "# cold\n"


@pytest.mark.parametrize("name", AWKWARD)
def test_the_sh_dialect_exports(tmp_path: Path, name: str) -> None:
    file = tmp_path / "env.sh"
    file.write_text(env_text(AWKWARD, "sh", comment="x"))
    script = f". {file}; exec printenv {name}"

    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, env={})

    assert done.stdout.decode().removesuffix("\n") == AWKWARD[name]


@pytest.mark.parametrize(("own", "merged"), [(None, "/d/s"), ("", "/d/s"), ("/a:/b", "/d/s:/a:/b")])
def test_the_sh_dialect_merges_the_python_path_of_its_reader(
    tmp_path: Path, own: str | None, merged: str
) -> None:
    file = tmp_path / "env.sh"
    file.write_text(env_text({"PYTHONPATH": "/d/s:/of/the/hook"}, "sh", comment="x"))

    done = subprocess.run(
        ["sh", "-c", f". {file}; printenv PYTHONPATH"],
        capture_output=True,
        check=True,
        env={} if own is None else {"PYTHONPATH": own},
    )

    assert done.stdout.decode().strip() == merged


def test_the_docker_dialect_quotes_nothing() -> None:
    text = env_text({"A": 'x "y" $z'}, "docker", comment="c")

    assert text.splitlines()[1] == 'A=x "y" $z'


@pytest.mark.parametrize("value", ["two\nlines", "nul\0", "bell\a", "\udcff"])
def test_what_no_env_file_can_hold_is_refused(value: str) -> None:
    with pytest.raises(ConfigError):
        env_text({"A": value}, "systemd", comment="c")


@pytest.mark.parametrize(
    "name", ["CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "PATH", "a-b", "A B", "1A", ""]
)
def test_variables_of_others_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        env_text({name: "x"}, "systemd", comment="c")


def test_the_shim_stands_in_front_and_once(tmp_path: Path) -> None:
    shim, old = tmp_path / "D" / "shim", tmp_path / "old" / "shim"
    (old / "prewarm_torchside").mkdir(parents=True)

    assert merged_python_path(shim, None) == str(shim)
    assert merged_python_path(shim, "/a:/b") == f"{shim}:/a:/b"
    assert merged_python_path(shim, f"{old}:/a:") == f"{shim}:/a:"


def test_a_shim_whose_path_would_be_read_as_two_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"/a:b/shim: holds a ':'.* --into"):
        merged_python_path(Path("/a:b/shim"), None)

"""README.md, CHANGELOG.md and .ci/run say what the code does and run as they are written."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from prewarm import __version__, errors
from prewarm.cli.main import COMMANDS, cli
from prewarm.config import Settings
from prewarm.registry.declaration_file import read_declaration
from prewarm.registry.model_table import LOADERS
from prewarm.store.status import Status
from prewarm.torchside.report import fold

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Calls that take a code without its name, with the place of that argument.
_CODE_ARGUMENTS = {"Refusal": 0, "failure": 0, "Verdict": 1, "_told": 2, "_rest": 4}


def _section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.M | re.S)
    assert found is not None, f"README.md has no section {title!r}"
    return found[1]


def _first_cells(title: str) -> list[str]:
    """Return what stands in backticks, or bare, in the first column of a section's table."""
    rows = re.findall(r"^\| (.+?) \|", _section(title).split("\n## ")[0], re.MULTILINE)[1:]
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row) or [row]]


# -- codes


def codes_of(source: str) -> set[str]:
    """Return every reason code that a module's text can give."""
    found: list[ast.expr] = []
    words: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.keyword(arg="code", value=value):
                found.append(value)
            case ast.ClassDef(body=body):
                found += [
                    statement.value
                    for statement in body
                    if isinstance(statement, ast.Assign)
                    and ast.unparse(statement.targets[0]) == "code"
                ]
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments):
                at = _CODE_ARGUMENTS.get(name)
                found += arguments[at : at + 1] if at is not None else []
            case ast.Assign(targets=[ast.Attribute(attr="ended_for")], value=ast.Tuple(elts=parts)):
                found.append(parts[0])
            case ast.AnnAssign(target=ast.Name(id="ZEROS"), value=ast.Tuple(elts=rows)):
                found += [row.elts[1] for row in rows if isinstance(row, ast.Tuple)]
            case ast.FunctionDef(name="reason_of"):
                found += [
                    inner.value.elts[0]
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Tuple)
                ]
            case ast.Constant(value=str(text)):
                words |= set(re.findall(r"\bcode = '(\w+)'", text))  # in SQL
    return words | {one.value for one in found if isinstance(one, ast.Constant) and one.value}


def test_codes_are_found_wherever_they_are_given() -> None:
    source = """
class Lost(Error):
    code = "of_class"
ZEROS: tuple = (("field", "of_zeros", "{n}"),)
def reason_of(error):
    return "of_reason", "text"
self.ended_for = ("of_end", "text")
raise Refusal("of_refusal", "text")
Verdict(Status.PARTIAL, "of_verdict", "text")
raise PrewarmError("text", code="of_keyword")
query("UPDATE entries SET code = 'of_sql'")
passed_on(code=error.code)
"""
    kinds = ("class", "zeros", "reason", "end", "refusal", "verdict", "keyword", "sql")
    assert codes_of(source) == {f"of_{kind}" for kind in kinds}


def test_every_reason_code_is_documented_and_every_documented_one_exists() -> None:
    given = {
        code
        for file in (ROOT / "prewarm").rglob("*.py")
        for code in codes_of(file.read_text(encoding="utf-8"))
    }
    documented = _first_cells("Reason codes")
    assert sorted(set(documented)) == sorted(given)
    assert len(documented) == len(set(documented)), "a code stands there twice"


# -- tables


def test_every_setting_is_documented_with_its_variable() -> None:
    names = [field.name for field in dataclasses.fields(Settings)]
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", _section("Settings"), re.MULTILINE)
    assert rows == [(name, f"PREWARM_{name.upper()}") for name in names]


def test_every_status_is_documented() -> None:
    assert _first_cells("Statuses") == [status.value for status in Status]


def test_every_exit_code_is_documented() -> None:
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    given = {one.exit_code for one in classes if issubclass(one, errors.PrewarmError)}
    documented = {int(cell) for cell in _first_cells("Exit codes")}
    assert documented == given | {0, click.UsageError.exit_code, 130}


def test_every_field_of_the_start_report_is_documented() -> None:
    assert set(_first_cells("The start report")) >= set(fold([], has_triton=True))


def test_every_loader_is_documented() -> None:
    assert [loader for loader in LOADERS if f"`{loader}`" not in README.replace('"', "`")] == []


# -- commands


def _command_lines() -> Iterator[str]:
    """Yield every line of the README's blocks that runs prewarm."""
    for language, block in _BLOCK.findall(README):
        if language not in ("sh", "ini"):
            continue
        for line in block.splitlines():
            for part in re.split(r"&&|;", line.removeprefix("ExecStartPre=")):
                words = part.split()
                if words and Path(words[0]).name == "prewarm":
                    yield " ".join(words[1:])


def test_every_command_is_shown_in_the_readme() -> None:
    assert [name for name in COMMANDS if f"prewarm {name}" not in README] == []


@pytest.mark.parametrize("line", sorted(set(_command_lines())))
def test_command_lines_of_the_readme_parse(line: str) -> None:
    name, *arguments = shlex.split(line)
    # A command keeps the help option that its first context named, so it gets the real parent.
    root = cli.make_context("prewarm", [], resilient_parsing=True)
    command = cli.get_command(root, name)
    assert command is not None, f"no command {name}"
    command.make_context(name, arguments, parent=root)


def test_options_named_in_the_readme_exist() -> None:
    root = click.Context(cli)
    # Beside our own: what pip, ruff, mypy, pytest, docker, curl and g++ are given.
    known = {"--help", "--no-deps", "--check", "--strict", "--env-file", "--version", "--dist"}
    known |= {"--no-compile"}  # pip
    known |= {"--system", "--now", "--home-dir", "--unix-socket"}  # useradd, systemctl, curl
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        known |= {option for parameter in command.params for option in parameter.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)) <= known


@pytest.mark.parametrize("title", ["Run it", "Test it"])
def test_headings_of_a_newcomer_have_one_block_of_one_command(title: str) -> None:
    blocks = _BLOCK.findall(_section(title))
    assert [language for language, _ in blocks] == ["sh"]
    assert blocks[0][1].count("\n") == 1
    assert ";" not in blocks[0][1]


def test_the_declaration_in_the_readme_is_one(tmp_path: Path) -> None:
    (block,) = [text for language, text in _BLOCK.findall(README) if language == "toml"]
    file = tmp_path / "prewarm.toml"
    file.write_text(block)
    declaration = read_declaration(file)
    assert [call.sizes for call in declaration.calls()] == [
        {"batch": 1, "seq": 32},
        {"batch": 8, "seq": 64},
    ]
    assert declaration.not_yet() == ()


def test_links_of_the_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


# -- the other files


def test_changelog_has_the_present_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(__version__)}\b", changelog, re.MULTILINE)


def test_ci_runs_the_test_command_afresh_and_passes_its_exit_code_on(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / ".venv").mkdir()
    (tmp_path / "README.md").write_text(
        "## Run it\n\n```sh\necho wrong\n```\n\n## Test it\n\n```sh\n"
        "test ! -e .venv && echo right && (exit 7) && echo wrong\n```\n\n```sh\necho wrong\n```\n"
    )
    done = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env={**os.environ, "CI": "true"},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (7, "right\n"), done.stderr


def test_ci_tells_a_readme_without_a_test_command(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "README.md").write_text("## Run it\n\n```sh\necho wrong\n```\n")
    done = subprocess.run([tmp_path / ".ci" / "run"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Test it" in done.stderr
    assert done.stdout == ""

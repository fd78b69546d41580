"""Properties of what a deployment reads: whatever stands in an env file, ``sh`` reads it back."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from prewarm.deploy.env_file import DIALECTS, env_text, source_command
from prewarm.deploy.listing import Listing, Written, read_listing, write_listing
from prewarm.errors import ConfigError
from prewarm.plain_text import is_plain

from ..properties import bounded, few, mutated

#: What shells and systemd act on, beside all else.
_VALUE = st.text(
    st.sampled_from("\"\\`$'!#;&|<>()*?[]{}~ =%\tä模")
    | st.characters(exclude_categories=("Cs", "Cc")),
    max_size=30,
)
_VARIABLES = st.dictionaries(st.from_regex(r"\AP_[A-Z0-9_]{0,6}\Z"), _VALUE, min_size=1, max_size=4)


@few
@given(_VARIABLES)
def test_sh_reads_what_was_written(variables: dict[str, str]) -> None:
    try:
        texts = [env_text(variables, dialect, comment="a test") for dialect in ("systemd", "sh")]
    except ConfigError as error:
        assert "control character" in str(error)
        return
    for text in texts:
        with tempfile.TemporaryDirectory(prefix="prewarm-test-") as directory:
            env = Path(directory, "env")
            env.write_text(text)
            done = subprocess.run(
                ["sh", "-c", f"{source_command(env)}; exec env -0"],
                env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True,
            )  # fmt: skip
        found = dict(line.split("=", 1) for line in done.stdout.decode().split("\0") if line)
        assert {name: found.get(name) for name in variables} == variables


@bounded
@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=3), st.text(max_size=20))
def test_any_variables_give_a_line_each_or_are_refused(
    variables: dict[str, str], comment: str
) -> None:
    for dialect in DIALECTS:
        try:
            text = env_text(variables, dialect, comment=comment)
        except ConfigError as error:
            assert is_plain(str(error))
            continue
        lines = text.splitlines()
        assert len(text.split("\n")) == len(variables) + 2
        assert lines[0].startswith("# ")


_LISTING = Listing(
    bundles=("a" * 64,),
    torchside="b" * 64,
    files={"inductor/a": Written(5, 1_800_000_000_000_000_000, "c" * 64)},
)


@bounded
@given(st.data())
def test_a_spoilt_listing_is_read_or_of_no_use(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory(prefix="prewarm-test-") as name:
        tree = Path(name)
        write_listing(tree, _LISTING)
        assert read_listing(tree) == _LISTING
        path = tree / "listing.json"
        path.write_bytes(data.draw(mutated(path.read_bytes())))
        found = read_listing(tree)
        if found is not None:
            assert all(is_plain(name) for name in found.files)
            json.dumps([found.bundles, found.torchside])

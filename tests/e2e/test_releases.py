"""The README's table of releases is what ``releases.json`` holds."""

from __future__ import annotations

import json

from .releases import BEGIN, END, KEPT, ROOT, table


def test_the_table_is_made_from_what_was_seen() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.count(BEGIN) == readme.count(END) == 1
    shown = readme.partition(BEGIN)[2].partition(END)[0].strip()
    assert shown == table(json.loads(KEPT.read_text(encoding="utf-8")))


def test_each_release_started_warm_with_every_mend_and_was_inert_without_the_shim() -> None:
    found = json.loads(KEPT.read_text(encoding="utf-8"))
    assert {one["torch"].split("+")[0] for one in found} == {"2.9.1", "2.13.0", "2.14.1"}
    for one in found:
        assert (one["status"]["status"], one["on"]["fx_misses"]) == ("warm", 0), one["torch"]
        assert one["on"]["foreign"] == "ran"
        assert [kept["inert"] for kept in one["kept_out"].values()] == [True] * 3

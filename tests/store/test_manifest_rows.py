from __future__ import annotations

from collections.abc import Callable

import pytest

from prewarm.errors import StoreCorrupt
from prewarm.store.database import Database
from prewarm.store.manifest import Manifest, build_manifest, manifest_entries
from prewarm.store.status import Status

At = Callable[[float], str]
Record = Callable[..., dict[str, object]]
ENVIRONMENT = "0123456789abcdef"


def _add(database: Database, model: str, at: str, **fields: object) -> None:
    database.see_checkpoint(
        model, f"/m/{model}", digest="d", architecture="a", aliases=[f"{model}-alias"], at=at
    )
    database.put_entry(model, ENVIRONMENT, at=at, **fields)  # type: ignore[arg-type]


def _build(database: Database, at: str) -> Manifest:
    return build_manifest(
        builder="b",
        version="1",
        entries=database.entries(),
        checkpoints=database.checkpoints(),
        environments={ENVIRONMENT: {"torch": "2.13", "cxx": None}, "unused": {}},
        at=at,
    )


def test_warm_and_partial_entries_are_published_with_their_aliases(
    database: Database, at: At, record: Record
) -> None:
    partial = record(status="partial", reason="why", code="c")
    _add(database, "b", at(0), status=Status.WARM, record=record())
    _add(database, "a", at(0), status=Status.PARTIAL, reason="why", record=partial)
    for status in set(Status) - {Status.WARM, Status.PARTIAL}:
        _add(database, f"no-{status}", at(0), status=status, reason="why", record=record())
    one, two = manifest_entries(database.entries(), database.checkpoints())
    assert (one.model, one.aliases, one.status) == ("a", ("a-alias",), "partial")
    assert (two.model, two.aliases, two.status) == ("b", ("b-alias",), "warm")
    assert {**two.to_dict(), "model": None, "aliases": None} == {
        **record(),
        "model": None,
        "aliases": None,
    }


def test_only_environments_that_an_entry_names_are_published(
    database: Database, at: At, record: Record
) -> None:
    assert _build(database, at(0)).environments == {}
    _add(database, "b", at(0), status=Status.WARM, record=record())
    manifest = _build(database, at(1))
    assert manifest.environments == {ENVIRONMENT: {"torch": "2.13", "cxx": None}}
    assert Manifest.from_dict(manifest.to_dict()) == manifest


def test_paths_of_this_machine_are_cut_but_variables_stay(
    database: Database, at: At, record: Record
) -> None:
    found = record(reason="warm, though /opt/x/g++ ran", variables={"A": "relative/path"})
    _add(database, "b", at(0), status=Status.WARM, record=found)
    [entry] = _build(database, at(1)).entries
    assert entry.reason == "warm, though …/g++ ran"
    assert entry.variables == {"A": "relative/path"}


def test_a_record_that_is_no_manifest_entry_is_told_with_its_model(
    database: Database, at: At, record: Record
) -> None:
    _add(database, "m/v1", at(0), status=Status.WARM, record=record(bundle=None, extra=1))
    with pytest.raises(StoreCorrupt, match=r"record of m/v1\.extra: unknown key; m/v1\.bundle: "):
        _build(database, at(1))


def test_an_environment_that_was_never_recorded_is_told(
    database: Database, at: At, record: Record
) -> None:
    _add(database, "b", at(0), status=Status.WARM, record=record(environment="other"))
    with pytest.raises(StoreCorrupt, match="environment other: is named by an entry"):
        _build(database, at(1))

"""One checkpoint under several interpreters: an entry for each, and what a change means for all."""

from __future__ import annotations

from prewarm.store.database import DATABASE_NAME, Database
from prewarm.store.entries import Entry
from prewarm.store.status import Status

#: Another interpreter, as far as its facts go.
ANOTHER = ("interpreter = [", 'interpreter = ["env", "TORCHINDUCTOR_ANOTHER=1", ')


def entries(shop) -> list[Entry]:
    with Database(shop.settings.state_dir / DATABASE_NAME) as database:
        return sorted(database.entries(), key=lambda entry: entry.id)


def published(shop) -> set[str]:
    return {entry["environment"] for entry in shop.manifest()["entries"]}


def under_both(shop) -> None:
    """Publish a checkpoint under the first interpreter, then under the other."""
    shop.model("m1")
    assert shop.scan().all_warm
    shop.declare(change=ANOTHER)
    assert shop.scan().all_warm


def test_the_entry_of_the_first_interpreter_stays_beside_that_of_the_second(shop) -> None:
    under_both(shop)

    first, second = entries(shop)
    assert (first.status, second.status) == (Status.WARM, Status.WARM)
    assert first.environment_id != second.environment_id
    assert published(shop) == {first.environment_id, second.environment_id}
    assert shop.builds("m1") == ["compiled", "compiled"]


def test_each_is_found_again_without_a_build(shop) -> None:
    under_both(shop)
    shop.declare()
    assert shop.scan().all_warm

    assert shop.builds("m1") == ["compiled", "compiled"]


def test_a_change_leaves_no_interpreter_with_what_was_proven_before(shop) -> None:
    under_both(shop)
    shop.model("m1", b"others")
    assert shop.scan().all_warm

    first, second = entries(shop)
    assert (first.status, first.code) == (Status.STALE, "stale")
    assert first.reason == (
        "the checkpoint's content changed since it was proven; "
        "a scan with this environment's interpreter builds it anew"
    )
    assert second.status is Status.WARM
    assert published(shop) == {second.environment_id}
    shop.declare()
    assert shop.scan().all_warm
    assert [entry.status for entry in entries(shop)] == [Status.WARM, Status.WARM]


def test_another_thread_count_leaves_no_entry_for_the_count_before(shop) -> None:
    """Both environments are those of the machine, and the hook could not tell them apart."""
    shop.model("m1")
    shop.scan()
    shop.declare(change=("[compile]", "threads = 1\n[compile]"))
    assert shop.scan().all_warm

    before, now = entries(shop)
    assert (before.status, now.status) == (Status.STALE, Status.WARM)
    assert "the declaration changed since it was proven" in (before.reason or "")
    assert published(shop) == {now.environment_id}

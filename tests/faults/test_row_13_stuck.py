"""Row 13, stuck or starved workers: a deadline, nobody left behind, the next mode, the next entry.

Upstream: pytorch #190930, sglang PR #29862.
"""

from __future__ import annotations

import os
from pathlib import Path

from prewarm.store.status import Status


def left_behind(shop) -> list[Path]:
    """Return the processes that any child of this builder started and that still run."""
    ours = os.fsencode(f"PREWARM_WORKDIR={shop.settings.state_dir}")
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if ours in (process / "environ").read_bytes():
                    found.append(process)
            except OSError:
                continue
    return found


def test_a_hang_that_ignores_its_end_and_has_children_falls_to_the_next_mode(
    shop, fault_row
) -> None:
    shop.declare(timeout_s=1)
    shop.model("m1", compile={"max-autotune": "hang_with_others"})
    shop.model("m2", b"longer weights", graph="two")

    shop.scan()

    entry = shop.entry("m1")
    assert left_behind(shop) == []
    assert shop.builds("m1") == ["failed", "compiled"]
    assert (entry.status, entry.code) == (Status.PARTIAL, "mode_fallback")
    assert "no answer within 1 s (timeout_s)" in entry.reason
    assert "its last line: told by the fake: tracing" in entry.reason
    assert entry.reason.startswith("built under max-autotune-no-cudagraphs, since max-autotune")
    assert shop.entry("m2").status is Status.WARM
    fault_row(
        row=13, case="tracing hangs", alone=None, said=f"partial, {entry.code}: {entry.reason}"
    )


def test_a_build_without_enough_memory_falls_to_a_mode_that_fits(shop, fault_row) -> None:
    shop = shop.with_settings(child_memory_bytes=200 << 20)
    shop.model("m1", compile={"max-autotune": "allocate"})
    shop.model("m2", b"longer weights", graph="two")

    shop.scan()

    entry = shop.entry("m1")
    assert shop.builds("m1") == ["failed", "compiled"]
    assert (entry.status, entry.code) == (Status.PARTIAL, "mode_fallback")
    assert "more than the 0.2 GiB that a build may take here" in entry.reason
    assert shop.entry("m2").status is Status.WARM
    fault_row(
        row=13,
        case="max-autotune takes more memory than there is",
        alone=None,
        said=f"partial, {entry.code}: {entry.reason}",
    )


def test_no_mode_that_fits_the_device_fails_the_entry_alone(shop, fault_row) -> None:
    modes = ("max-autotune", "max-autotune-no-cudagraphs", "default")
    shop.model("m1", compile=dict.fromkeys(modes, "out_of_memory"))
    shop.model("m2", b"longer weights", graph="two")

    shop.scan()

    entry = shop.entry("m1")
    assert shop.builds("m1") == ["failed"] * 3
    assert (entry.status, entry.code) == (Status.FAILED, "out_of_memory")
    assert shop.entry("m2").status is Status.WARM
    assert [found["model"] for found in shop.manifest()["entries"]] == ["m2"]
    fault_row(
        row=13,
        case="the device is full in every mode",
        alone=None,
        said=f"failed, {entry.code}: {entry.reason}",
    )


def test_a_proof_that_hangs_publishes_nothing_and_leaves_nobody(shop, fault_row) -> None:
    shop.declare(timeout_s=1)
    shop.model("m1", prove="hang_with_others")
    shop.model("m2", b"longer weights", graph="two")

    shop.scan()

    entry = shop.entry("m1")
    assert left_behind(shop) == []
    assert (entry.status, entry.code) == (Status.FAILED, "timeout")
    assert "its last line: told by the fake: tracing" in entry.reason
    assert [found["model"] for found in shop.manifest()["entries"]] == ["m2"]
    fault_row(
        row=13, case="the proof hangs", alone=None, said=f"failed, {entry.code}: {entry.reason}"
    )

"""The build key changes with all that reaches the graph, and with nothing else."""

from __future__ import annotations

from prewarm.build.key import build_key

SAME = {"architecture": "a", "environment_id": "e", "declared": {"mode": "max-autotune"}}


def test_equal_parts_make_equal_keys_in_any_order() -> None:
    one = build_key(architecture="a", environment_id="e", declared={"x": 1, "y": 2})
    two = build_key(architecture="a", environment_id="e", declared={"y": 2, "x": 1})
    assert one == two
    assert len(one) == 64


def test_each_part_changes_the_key() -> None:
    keys = {
        build_key(**SAME),
        build_key(**{**SAME, "architecture": "b"}),
        build_key(**{**SAME, "environment_id": "f"}),
        build_key(**{**SAME, "declared": {"mode": "default"}}),
        build_key(**SAME, own_graph_of="digest"),
    }
    assert len(keys) == 5

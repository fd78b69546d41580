"""``prewarm verify``: one line for each model, 0 only if each was proven warm again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys


def arguments(shop) -> list[str]:
    settings = shop.settings
    return [
        *("--registry", str(settings.registry), "--cache-dir", str(settings.cache_dir)),
        *("--state-dir", str(settings.state_dir)),
    ]


def test_each_model_is_one_line_and_zero_means_warm(shop, prewarm, monkeypatch) -> None:
    monkeypatch.setenv("PREWARM_BUILDER", "test")
    monkeypatch.setenv("PREWARM_SETTLE_S", "0.05")
    shop.model("m1")
    shop.model("m2", b"other", graph="two", report={"limits_hit": 1})
    shop.scan()

    code, out, err = prewarm("verify", "m1", *arguments(shop))
    assert code == 0
    assert out == "m1: warm, proven again in 3 fresh processes, first call 1.0 s\n"
    assert "m1: fresh process 2 of 3" in err

    code, out, _ = prewarm("verify", *arguments(shop))
    assert code == 1
    assert out.splitlines()[1].startswith("m2: still partial: at a start from the bundle torch's")

    code, out, err = prewarm("verify", "--json", *arguments(shop))
    told = json.loads(out)
    assert (code, err) == (1, "")
    assert told.keys() == {"entries"}
    first, second = told["entries"]
    assert first == {
        "model": "m1",
        "environment": shop.entry("m1").environment_id,
        "outcome": "proven",
        "status": "warm",
        "reason": None,
        "code": None,
        "processes": 3,
        "warm_s": 1.0,
    }
    assert (second["outcome"], second["code"]) == ("unchanged", "recompile_limit")

    code, _, err = prewarm("verify", "m3", *arguments(shop))
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("prewarm: error: m3: no such checkpoint")


def test_an_interrupt_ends_with_130_and_the_entry_stays(shop, wait_until) -> None:
    marks = shop.root / "marks"
    marks.mkdir()
    shop.model("m1", elsewhere=str(shop.root / "m1.json"))
    shop.scan()
    behaviour = {"marks": str(marks), "hold": ["prove-full"]}
    (shop.root / "m1.json").write_text(json.dumps(behaviour))
    process = subprocess.Popen(
        [sys.executable, "-m", "prewarm.cli", "verify", "m1", *arguments(shop)],
        env=os.environ | {"PREWARM_BUILDER": "test", "PREWARM_SETTLE_S": "0.05"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until((marks / "prove-full.reached").exists)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("prewarm: error: interrupted; m1 stays warm\n")
    assert shop.entry("m1").status == "warm"

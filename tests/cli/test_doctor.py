"""``prewarm doctor``: each finding with its next step; 1 if something fails."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from prewarm.cli import machine_checks
from prewarm.cli.key_check import check_key
from prewarm.cli.machine_checks import check_machine
from prewarm.cli.place_checks import check_places
from prewarm.cli.watch_check import check_watching
from prewarm.config import Settings
from prewarm.environment import Environment
from prewarm.registry import watch_method
from prewarm.store.signing import load_or_create_key

Result = tuple[int, str, str]
Prewarm = Callable[..., Result]

HEALTHY: dict[str, str | None] = {
    "python": "cpython 3.11.7",
    "torch": "2.13.0+cu130",
    "cuda": "13.0",
    "triton": "3.6.0",
    "cxx": "g++",
    "cxx_version": "g++ 12",
    "device": "NVIDIA H200",
    "capability": "9.0",
    "sm_count": "132",
    "driver": "580.1",
    "variables": "{}",
}


def findings(monkeypatch: pytest.MonkeyPatch, **facts: str | None) -> dict[str, tuple[str, str]]:
    environment = Environment.from_facts(HEALTHY | facts)
    monkeypatch.setattr(machine_checks, "present_environment", lambda *_, **__: environment)
    found = check_machine((), {})
    assert all(finding.next_step or finding.level == "ok" for finding in found)
    return {finding.check: (finding.level, finding.found) for finding in found}


def test_a_healthy_machine_is_ok(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {level for level, _ in findings(monkeypatch).values()} == {"ok"}


@pytest.mark.parametrize(
    ("facts", "check", "level", "told"),
    [
        ({"torch": None}, "torch", "fail", "not found"),
        ({"torch": "2.8.1"}, "torch", "fail", "too old"),
        ({"torch": "2.15.0"}, "torch", "warn", "newer than"),
        ({"cxx": None, "cxx_version": None}, "C++ compiler", "fail", "even on a perfect hit"),
        ({"cxx_version": None}, "C++ compiler", "fail", "is there but does not run"),
        ({"triton": None}, "triton", "fail", "not found"),
        ({"cuda": None}, "GPU", "warn", "built without CUDA"),
        ({"torch": "2.11.0"}, "upstream", "warn", "#172819"),
        ({"variables": '{"TORCHINDUCTOR_X": "1"}'}, "variables", "warn", "TORCHINDUCTOR_X"),
    ],
)
def test_what_is_wrong_is_told(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, str | None], check: str, level: str, told: str
) -> None:
    found = findings(monkeypatch, **facts)

    assert found[check][0] == level
    assert told in found[check][1]


def test_no_gpu_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_listed_names", lambda: [])
    found = findings(monkeypatch, device=None, cuda=None, triton=None, torch="2.11.0")

    assert found["GPU"] == ("ok", "no GPU: CPU builds only")
    assert "upstream" not in found, "tuning again is a fault on a GPU"


def test_a_gpu_that_cuda_does_not_show_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_listed_names", lambda: ["NVIDIA H200"])

    assert findings(monkeypatch, device=None)["GPU"][0] == "warn"


def test_this_machine_is_looked_at_and_nothing_is_made(prewarm: Prewarm, tmp_path: Path) -> None:
    code, out, err = prewarm(
        "doctor", "--json", "--registry", tmp_path,
        "--cache-dir", tmp_path / "c" / "d", "--state-dir", tmp_path / "s",
    )  # fmt: skip

    told = json.loads(out)
    checks = {check["check"]: check for check in told["checks"]}
    assert err == ""
    assert code == (0 if told["ok"] else 1)
    assert {"interpreter", "torch", "C++ compiler", "GPU", "registry", "cache_dir"} < set(checks)
    assert checks["cache_dir"]["level"] in ("ok", "warn")
    assert list(tmp_path.iterdir()) == []


def test_a_failure_ends_with_1_and_names_the_next_step(prewarm: Prewarm, tmp_path: Path) -> None:
    code, out, _ = prewarm(
        "doctor", "--interpreter", "/no/python", "--registry", tmp_path / "nope",
        "--cache-dir", "/proc/nope", "--state-dir", tmp_path,
    )  # fmt: skip

    assert code == 1
    lines = out.splitlines()
    for check in ("interpreter", "registry", "cache_dir"):
        [number] = [n for n, line in enumerate(lines) if line.startswith(f"fail {check}")]
        assert lines[number + 1].strip().startswith("-> ")


def test_another_interpreter_is_asked(prewarm: Prewarm, tmp_path: Path) -> None:
    _, out, _ = prewarm(
        "doctor", "--interpreter", sys.executable, "--cache-dir", tmp_path, "--state-dir", tmp_path
    )

    assert sys.executable in out


@pytest.mark.skipif(os.getuid() != 0, reason="proofs change user only under root")
def test_a_proof_user_that_is_not_there_is_told(
    prewarm: Prewarm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREWARM_PROOF_USER", "no-such-user")

    _, out, _ = prewarm("doctor", "--cache-dir", tmp_path, "--state-dir", tmp_path)

    assert "no user 'no-such-user', so proofs run as root" in out


@pytest.mark.skipif(os.getuid() != 0, reason="root makes what another user cannot enter")
def test_places_that_are_closed_to_the_user_are_findings() -> None:
    with tempfile.TemporaryDirectory(prefix="prewarm-test-") as name:
        place = Path(name) / "closed" / "place"
        place.mkdir(parents=True)
        place.parent.chmod(0o700)
        os.seteuid(65534)
        try:
            settings = Settings(registry=place, cache_dir=place, state_dir=place, builder="b")
            found = {one.check: one for one in check_places(settings, {"HOME": name})}
        finally:
            os.seteuid(0)

    assert found["registry"].level == found["cache_dir"].level == "fail"
    assert "cannot be read as user 65534" in found["registry"].found
    assert "cannot be written (Permission denied)" in found["cache_dir"].found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change users")
def test_an_interpreter_that_the_proof_user_cannot_run_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "python").symlink_to(sys.executable)
    settings = Settings(None, tmp_path / "cache", tmp_path / "state", "test")
    found = {one.check: one for one in check_places(settings, {}, (str(closed / "python"),))}
    assert found["proof user"].level == "warn"
    assert f"nobody cannot run {closed / 'python'}" in found["proof user"].found


def test_how_the_registry_would_be_watched_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    settings = Settings(tmp_path, tmp_path, tmp_path, "test")
    [found] = check_watching(settings)
    assert (found.check, found.level) == ("watching", "ok")
    assert found.found.startswith("inotify: 2 directories of ")

    monkeypatch.setattr(watch_method, "watch_limit", lambda: 2)
    [found] = check_watching(settings)
    assert found.level == "warn"
    assert found.next_step is not None
    assert found.next_step.endswith("max_user_watches=65536")

    monkeypatch.setattr(watch_method, "watch_limit", lambda: 1)
    [found] = check_watching(settings)
    assert found.level == "warn"
    assert found.found.startswith("polling every 5 s: the kernel's watches do not suffice")

    assert check_watching(Settings(None, tmp_path, tmp_path, "test")) == []


def test_the_public_key_is_told_for_deployments_elsewhere(tmp_path: Path) -> None:
    settings = Settings(
        registry=None, cache_dir=tmp_path, state_dir=tmp_path / "state", builder="b"
    )
    assert check_key(settings).found == "none yet; the first scan makes it"
    key = load_or_create_key(settings.state_dir)

    assert (check_key(settings).level, check_key(settings).found) == ("ok", key.public)
    (settings.state_dir / "signing.key").chmod(0o644)
    assert check_key(settings).level == "fail"

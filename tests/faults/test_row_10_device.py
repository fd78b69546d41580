"""Row 10, another device: compared exactly, refused by name, and device 0 as the server sees it.

Upstream: vllm #41871, pytorch #170123.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from prewarm.cli.main import main

from ..deploy.conftest import Publisher, present_facts

__all__ = ["present_facts"]

Told = tuple[int, str, str]

H200 = {"device": "NVIDIA H200", "capability": "9.0", "sm_count": "132", "driver": "580.1"}
#: The facts of a GPU machine, whatever the one that runs the tests has.
SOFTWARE = {"torch": "2.13.0+cu130", "torch_git": "1", "cuda": "13.0", "triton": "3.6.0"}


@pytest.fixture
def publish(tmp_path: Path, present_facts: dict[str, str | None]) -> Publisher:
    return Publisher(tmp_path, present_facts | SOFTWARE)


@pytest.fixture
def on(
    publish: Publisher, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Told]:
    """Run a command of a deployment whose machine has other facts than this one."""

    def run(command: str, facts: Mapping[str, str | None], *words: str) -> Told:
        machine = Path(__file__).with_name("machine.py")
        argv = [sys.executable, str(machine), json.dumps({**SOFTWARE, **facts})]
        place = ("--into", str(tmp_path / "D")) if command == "hook" else ()
        where = ("--manifest", str(publish.cache_dir), "--interpreter", shlex.join(argv))
        code = main([command, "minilm/v1", *where, *place, *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


CASES = [
    (
        "same name, other capability",
        {"capability": "10.0"},
        "capability is 10.0 here, the bundle was built with 9.0",
    ),
    (
        "same name and capability, other SM count (a MIG slice)",
        {"sm_count": "16"},
        "sm count is 16 here, the bundle was built with 132",
    ),
    (
        "another GPU",
        {"device": "NVIDIA H100 80GB HBM3"},
        "device is NVIDIA H100 80GB HBM3 here, the bundle was built with NVIDIA H200",
    ),
    (
        "a name that only begins alike",
        {"device": "NVIDIA H200 NVL"},
        "device is NVIDIA H200 NVL here, the bundle was built with NVIDIA H200",
    ),
    (
        "no GPU that CUDA shows",
        dict.fromkeys(H200),
        "device is not there here, the bundle was built with NVIDIA H200",
    ),
]


@pytest.mark.parametrize(("case", "here", "told"), CASES, ids=[case[0] for case in CASES])
def test_another_device_is_refused_by_name(
    publish: Publisher, on: Callable[..., Told], tmp_path: Path, fault_row, case, here, told
) -> None:
    publish(facts=H200)

    code, _, line = on("hook", H200 | here, "--on-miss", "fail")

    assert code == 4
    assert line.startswith(f"prewarm: error: minilm/v1: {told} (cost: refused: kernels ")
    assert line.count("\n") == 1
    assert not list(tmp_path.glob("D/*/inductor")), "nothing of it may be used"

    env_file = tmp_path / "env"
    code, _, line = on("hook", H200 | here, "--env-file", str(env_file))
    assert code == 0
    assert line.startswith(f"prewarm: warning: minilm/v1: {told}")
    assert line.endswith("; starting cold\n")
    assert "TORCHINDUCTOR_CACHE_DIR" not in env_file.read_text()

    code, out, _ = on("explain", H200 | here, "--json")
    found = json.loads(out)
    assert (code, found["warm"], found["code"]) == (1, False, "environment_differs")
    assert found["differences"][0]["fact"] == told.partition(" is ")[0].replace(" ", "_")
    fault_row(row=10, case=case, alone=None, said=line.removeprefix("prewarm: warning: "))


def test_each_machine_takes_what_was_built_for_it(
    publish: Publisher, on: Callable[..., Told], tmp_path: Path, fault_row
) -> None:
    slice_facts = H200 | {"sm_count": "16"}
    whole = publish(facts=H200)
    part = publish(facts=slice_facts, files={"triton/slice/kernel.cubin": b"slice" * 100})

    for facts, info in ((H200, whole), (slice_facts, part), (H200, whole)):
        code, out, told = on("hook", facts, "--on-miss", "fail", "--json")
        assert (code, told) == (0, "")
        assert json.loads(out)["models"][0]["bundle"] == info.sha256
        assert info.sha256[:32] in json.loads(out)["variables"]["TRITON_CACHE_DIR"]

    code, _, told = on("hook", H200 | {"sm_count": "78"}, "--on-miss", "fail")
    assert code == 4
    assert "sm count is 78 here, the bundle was built with " in told
    assert "1 more published environment differs in more facts" in told
    fault_row(
        row=10,
        case="two environments are published, and the machine is a third",
        alone=None,
        said=told.removeprefix("prewarm: error: "),
    )


def test_another_driver_alone_is_no_other_device(
    publish: Publisher, on: Callable[..., Told]
) -> None:
    publish(facts=H200)
    code, _, told = on("hook", H200 | {"driver": "590.2"}, "--on-miss", "fail")
    assert (code, told) == (0, "")


@pytest.mark.parametrize("visible", ["3", "GPU-0d1e2f", ""])
def test_which_device_is_visible_stays_the_scheduler_s(
    publish: Publisher,
    on: Callable[..., Told],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    visible: str,
) -> None:
    publish(facts=H200)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    code, out, told = on("hook", H200, "--on-miss", "fail", "--json")
    assert (code, told) == (0, "")
    assert "CUDA_VISIBLE_DEVICES" not in json.loads(out)["variables"]
    for dialect in ("systemd", "sh", "docker"):
        env_file = tmp_path / dialect
        code, _, told = on("hook", H200, "--env-file", str(env_file), "--format", dialect)
        assert (code, told) == (0, "")
        assert "TRITON_CACHE_DIR" in env_file.read_text()
        assert "CUDA_VISIBLE_DEVICES" not in env_file.read_text()
    for name in ("env", "env.json"):
        assert "CUDA_VISIBLE_DEVICES" not in (tmp_path / "D" / name).read_text()

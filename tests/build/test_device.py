"""A GPU is this builder's alone while it works there, and nobody's who others keep busy."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from prewarm.build import device as module
from prewarm.build.device import Device, Guard
from prewarm.build.gpu import Gpu
from prewarm.build.gpu_load import Load
from prewarm.build.gpu_lock import GpuLock
from prewarm.build.holdups import Holdups
from prewarm.errors import PrewarmError
from prewarm.store.database import Database

GPU = Gpu("GPU-aa", "NVIDIA H200", 0)
FREE, HELD, AT_WORK = (
    Load(1 << 30, 140 << 30, 3),
    Load(70 << 30, 140 << 30, 0),
    Load(1 << 30, 140 << 30, 90),
)


class Machine:
    """Two builders beside each other, and what others do on the GPU."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.load: Load | None = FREE
        self.one, self.other = (
            Guard(Device("cuda", GPU), GpuLock(GPU.uuid, prefix)) for _ in range(2)
        )

    def close(self) -> None:
        for guard in (self.one, self.other):
            guard._release()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    made = Machine(f"prewarm-test-{secrets.token_hex(8)}")
    monkeypatch.setattr(module, "read_load", lambda gpu: made.load)
    yield made
    made.close()


def against(guard: Guard, *, busy_percent: float = 25.0) -> str | None:
    reason = guard.enter(busy_percent=busy_percent)
    return None if reason is None else str(reason)


def test_one_builder_at_a_time_and_all_of_its_workers(machine: Machine) -> None:
    assert against(machine.one) is None
    assert against(machine.one) is None, "its other worker"
    told = "waits for NVIDIA H200 GPU-aa: another builder of this host works on it"
    assert against(machine.other) == told
    machine.one.leave()
    assert against(machine.other) == told
    machine.one.leave()
    assert against(machine.one) == told, "who waits comes before who has just worked"
    assert against(machine.other) is None
    machine.other.leave()
    assert against(machine.one) is None


def test_who_has_nothing_to_do_any_more_stands_in_nobodys_way(machine: Machine) -> None:
    assert against(machine.one) is None
    assert against(machine.other) is not None
    machine.other.step_aside()
    machine.one.leave()
    assert against(machine.one) is None


def test_a_lock_dies_with_its_holder(machine: Machine) -> None:
    code = (
        "import sys\n"
        "from prewarm.build.gpu_lock import GpuLock\n"
        f"lock = GpuLock({GPU.uuid!r}, {machine.prefix!r})\n"
        "print(lock.take(), flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdin is not None
    with holder.stdout, holder.stdin:
        assert holder.stdout.readline() == "True\n"
        assert against(machine.one) is not None
        holder.kill()
        holder.wait()
    assert against(machine.one) is None


def test_a_lock_that_the_kernel_does_not_give_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*family: object) -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr("prewarm.build.gpu_lock.socket.socket", refused)
    assert "it cannot be locked against other builders (Address family not" in (
        against(machine.one) or ""
    )


@pytest.mark.parametrize(
    ("load", "found"),
    [(HELD, "others hold 70 of its 140 GiB"), (AT_WORK, "others keep it busy")],
)
def test_a_gpu_that_others_use_is_waited_for(machine: Machine, load: Load, found: str) -> None:
    machine.load = load
    told = against(machine.one) or ""
    assert told.startswith(f"waits for NVIDIA H200 GPU-aa: {found}, and a build begins at 25% or")
    assert "gpu_busy_percent" in told
    assert against(machine.one, busy_percent=95.0) is None, "it is a setting"
    machine.one.leave()


def test_work_goes_on_once_it_is_free_or_nothing_can_be_told(machine: Machine) -> None:
    machine.load = HELD
    assert against(machine.one) is not None
    assert against(machine.other) is not None, "for the same reason: it is not locked meanwhile"
    machine.load = None
    assert against(machine.one) is None
    machine.load = HELD
    assert against(machine.one) is None, "now it is this builder's own work"


def test_a_slice_of_which_no_time_is_told_is_judged_by_its_memory(machine: Machine) -> None:
    machine.load = Load(0, 18 << 30, None)
    assert against(machine.one) is None


def test_a_kind_with_a_problem_is_never_begun_on() -> None:
    refused = Guard(Device("cuda", problem="sees 2 types")).enter(busy_percent=100.0)
    assert refused is not None
    assert (str(refused), refused.code) == ("sees 2 types", "gpu_choice")


# -- what is told of it


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database(tmp_path / "prewarm.db") as opened:
        yield opened


def test_nothing_is_told_while_one_of_several_can_begin(database: Database) -> None:
    trouble: list[str] = []
    entry = database.put_entry("m", "e", at="2027-01-15T08:00:00.000Z")
    holdups = Holdups(["a", "b"], lambda error: trouble.append(f"{error.code}: {error}"))

    def tell(worker: str, reason: str | None) -> str | None:
        error = None if reason is None else PrewarmError(reason, code="gpu_busy")
        holdups.tell(worker, error, database, [entry.id])
        found = database.entry("m", "e")
        assert found is not None
        assert (found.code == "gpu_busy") == (found.reason is not None)
        return found.reason

    assert tell("a", "a is busy") is None
    assert tell("b", "b is busy") == "a is busy; b is busy"
    assert tell("b", "b is busy") == "a is busy; b is busy"
    assert trouble == ["gpu_busy: a is busy; b is busy"]
    assert tell("proofs", None) == "a is busy; b is busy", "it is held up by the same"
    assert tell("b", None) is None
    assert tell("b", "b is busy") == "a is busy; b is busy"
    assert len(trouble) == 2


def test_what_an_earlier_run_told_is_taken_back(database: Database) -> None:
    entry = database.put_entry("m", "e", at="2027-01-15T08:00:00.000Z")
    database.tell_waiting("it was busy", code="gpu_busy", among=[entry.id])
    Holdups(["a"], lambda error: None).tell("a", None, database, [entry.id])
    found = database.entry("m", "e")
    assert found is not None
    assert found.reason is None

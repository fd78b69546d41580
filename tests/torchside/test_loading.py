"""A loaded model: its surroundings, its attributes, and what hears that torch compiles anew.

With a backend that compiles nothing, in this process; the real thing is in tests/e2e/test_load.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prewarm.torchside import upstream_recompiles
from prewarm.torchside.loading import Loaded, Recompiling


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(4, 4)
        self.share = 0.5

    def forward(self, x: Any, pair: Any = None) -> Any:
        y = self.up(x) * self.share
        return y if pair is None else y + pair["right"][0]

    def encode(self, x: Any) -> Any:
        return torch.is_inference_mode_enabled(), self(x)


class Stopped(Exception):
    """What a teller raises."""


def load(recompiling: Recompiling | None, *, model: Any = None, **facts: Any) -> Any:
    compiled = torch.compile(model or Model().eval(), backend="eager", dynamic=False)
    session: Any = SimpleNamespace(
        called=compiled,
        model={"grad": "inference", "autocast": "", "device": "cpu", **facts},
        calls=[
            SimpleNamespace(shape_set={"call": "encode"}),
            SimpleNamespace(shape_set={"inputs": {"x": {}, "pair": {}}}),
        ],
    )
    return Loaded(session, recompiling)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    assert upstream_recompiles.listen()
    yield
    torch._dynamo.reset()


@pytest.fixture
def told() -> list[Any]:
    return []


def test_a_call_stands_in_its_declared_surroundings(told: list[Any]) -> None:
    inference = load(told.append)(torch.ones(2, 4))
    assert inference.is_inference()
    assert not load(told.append, grad="no_grad")(torch.ones(2, 4)).requires_grad
    assert load(told.append, grad="grad")(torch.ones(2, 4)).requires_grad
    halved = load(told.append, autocast="bfloat16")(torch.ones(2, 4))
    assert halved.dtype is torch.bfloat16
    assert not torch.is_inference_mode_enabled()


def test_other_attributes_are_the_model_s_and_declared_methods_are_called_alike(
    told: list[Any],
) -> None:
    loaded = load(None)
    assert loaded.share == 0.5
    assert loaded.up.in_features == 4
    assert [name for name, _ in loaded.named_parameters()] == [
        "module._orig_mod.up.weight",
        "module._orig_mod.up.bias",
    ]
    in_inference_mode, _ = loaded.encode(torch.ones(2, 4))
    assert in_inference_mode
    with pytest.raises(AttributeError, match="missing"):
        _ = loaded.missing


def test_a_compile_is_told_with_the_call_s_tensors_and_once(told: list[Any]) -> None:
    loaded = load(told.append)
    x, right = torch.ones(2, 4), [torch.ones(4, dtype=torch.float64)]
    loaded(x, pair={"right": right})
    loaded(x, pair={"right": right})
    assert told == [
        [
            {"name": "args.0", "dtype": "float32", "shape": [2, 4]},
            {"name": "pair.right.0", "dtype": "float64", "shape": [4]},
        ]
    ]


def test_keyword_arguments_go_in_their_declared_order() -> None:
    """A start of a new process would miss: their order is that of a graph's inputs."""
    orders: list[list[str]] = []

    class Noting(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, **kwargs: Any) -> None:
            orders.append(list(kwargs))

    loaded = load(None, model=Noting())
    loaded(pair=1, x=2)
    loaded(x=1)
    loaded(other=1, x=2)
    assert orders == [["x", "pair"], ["x"], ["other", "x"]]


def test_what_is_raised_ends_the_call_and_nothing_is_compiled(told: list[Any]) -> None:
    def stop(inputs: list[Any]) -> None:
        told.append(inputs)
        if stopping:
            raise Stopped("no")

    stopping = False
    loaded = load(stop)
    loaded(torch.ones(2, 4))
    stopping = True
    frames = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for _ in range(2):
        with pytest.raises(Stopped):
            loaded(torch.ones(3, 4))
    loaded(torch.ones(2, 4))
    assert len(told) == 3
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == frames


def test_an_error_that_dynamo_swallows_is_raised_after_the_call() -> None:
    def stop(inputs: list[Any]) -> None:
        raise Stopped("no")

    with torch._dynamo.config.patch(suppress_errors=True), pytest.raises(Stopped):
        load(stop)(torch.ones(2, 4))


def test_without_a_teller_torch_compiles_as_it_likes() -> None:
    loaded = load(None)
    for rows in (1, 2, 3):
        assert loaded(torch.ones(rows, 4)).shape == (rows, 4)


def test_another_module_s_compile_is_not_this_one_s(told: list[Any]) -> None:
    loaded = load(told.append)
    loaded(torch.ones(2, 4))
    torch.compile(Model(), backend="eager", dynamic=False)(torch.ones(3, 4))
    assert len(told) == 1


def test_a_compile_of_another_thread_is_no_news_to_a_call_that_goes_on() -> None:
    """Two requests at once: what one of them compiles must not end the other."""
    told: list[Any] = []
    inside, compiled = threading.Event(), threading.Event()

    class Waiting(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, x: Any) -> Any:
            if waits:
                inside.set()
                assert compiled.wait(60)
            return x

    waits = False
    waiting = load(told.append, model=Waiting())
    waiting(torch.ones(2, 4))
    waits = True
    told.clear()
    thread = threading.Thread(target=lambda: waiting(torch.ones(2, 4)))
    thread.start()
    assert inside.wait(60)
    torch.compile(Model(), backend="eager", dynamic=False)(torch.ones(2, 4))
    compiled.set()
    thread.join(60)
    assert told == []


def test_a_call_within_a_call_is_told_to_its_own_teller(told: list[Any]) -> None:
    inner_told: list[Any] = []
    inner = load(inner_told.append)

    class Outer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return self.answer(x)

        @torch.compiler.disable
        def answer(self, x: Any) -> Any:
            return inner(x)

    outer = load(told.append, model=Outer())
    outer(torch.ones(2, 4))
    assert len(inner_told) == 1
    inner_told.clear()
    told.clear()
    outer(torch.ones(2, 4))
    assert (told, inner_told) == ([], [])


def test_where_torch_does_not_let_us_hear_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_recompiles, "_installed", False)
    monkeypatch.setattr(upstream_recompiles, "_COMPILE", "_compile_renamed")
    assert upstream_recompiles.listen() is False
    monkeypatch.setattr(upstream_recompiles, "_FRAMES", "torch._dynamo.gone")
    assert upstream_recompiles.listen() is False

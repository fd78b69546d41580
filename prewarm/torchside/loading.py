"""A declared model for a server's own code: loaded, compiled as declared, warmed, and watched over.

What it gives back enters the declared grad mode and autocast by itself, since both are part of what
torch checks: a call that forgot them would compile anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from . import shim, surroundings, upstream_recompiles
from .protocol import Refusal
from .session import DeclaredCall, Session

#: Gets the tensors of a call that torch is about to compile anew, as name, dtype and shape.
Recompiling = Callable[[list[dict[str, Any]]], None]

#: Counts of the watcher that say that a start compiled.
_COMPILED = ("graphs_compiled", "cpp_compiled", "triton_compiled")


class Loaded(torch.nn.Module):  # type: ignore[misc]  # torch is not followed
    """The compiled module as a server calls it; whatever else is asked of it is the module's."""

    def __init__(self, session: Session, recompiling: Recompiling | None) -> None:
        super().__init__()
        self.module = session.called
        self._declared = dict(session.model)
        self._methods = frozenset(
            str(call.shape_set.get("call")) for call in session.calls
        ) - frozenset((".", "None"))
        self._orders = {frozenset(order): order for order in map(_names, session.calls)}
        self._recompiling = recompiling

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module in its declared surroundings."""
        return self._call(self.module, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("module", "_methods"):
                raise
        found = getattr(self.module, name)
        if name not in self._methods:
            return found

        def called(*args: Any, **kwargs: Any) -> Any:
            return self._call(found, args, kwargs)

        return called

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # The order of keyword arguments is the order of a graph's inputs.
        order = self._orders.get(frozenset(kwargs))
        if order is not None:
            kwargs = {name: kwargs[name] for name in order}
        if self._recompiling is None:
            with surroundings.around(self._declared):
                return function(*args, **kwargs)
        watch = _Watch(self._recompiling, args, kwargs)
        with upstream_recompiles.listening(watch.heard), surroundings.around(self._declared):
            output = function(*args, **kwargs)
        # Dynamo swallows an error where `suppress_errors` tells it to.
        if watch.error is not None:
            raise watch.error
        return output


class _Watch:
    """One call: tells once that it is compiled anew, and stops it if the teller raises."""

    __slots__ = ("_args", "_kwargs", "_recompiling", "_told", "error")

    def __init__(
        self, recompiling: Recompiling, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._recompiling = recompiling
        self._args = args
        self._kwargs = kwargs
        self._told = False
        self.error: Exception | None = None

    def heard(self) -> None:
        if self.error is not None:
            raise self.error
        if self._told:
            return
        self._told = True
        try:
            self._recompiling(list(_tensors(self._args, self._kwargs)))
        except Exception as error:
            self.error = error
            raise


def load(
    declaration: dict[str, Any],
    checkpoint: str,
    *,
    mode: str | None,
    recompiling: Recompiling | None,
) -> tuple[Loaded, int | None]:
    """Load a model, make its declared calls once, and return it with how many things it compiled.

    That is None where nothing is watched. ``mode`` None leaves it uncompiled. After the declared
    calls, ``recompiling`` is told before torch compiles anything for a call of it; what it raises
    ends the call.

    Raises:
        Refusal: the declaration does not fit, or this torch does not let us hear a recompile.
    """
    before = _compiled()
    with _same_random_numbers(declaration["model"].get("device") or "cpu"):
        session = Session(declaration, checkpoint)
        if mode is None:
            session.called = session.module
            return Loaded(session, None), None
        session.compile(mode)
        for call in session.calls:
            _warm(session, call)
    if declaration["model"]["grad"] == "grad":
        session.module.zero_grad(set_to_none=True)
    if recompiling is not None and not upstream_recompiles.listen():
        raise Refusal(
            "cannot_tell",
            "torch %s does not tell when it compiles anew; ask for on_recompile = 'ignore'"
            % torch.__version__,
        )
    after = _compiled()
    told = None if before is None or after is None else after - before
    return Loaded(session, recompiling), told


def _names(call: DeclaredCall) -> tuple[str, ...]:
    """Return the keyword arguments of a declared call in their order."""
    return (*(call.shape_set.get("inputs") or ()), *(call.shape_set.get("kwargs") or ()))


def _warm(session: Session, call: DeclaredCall) -> None:
    arguments = session.arguments(call)
    if shim.watcher is None:
        session.run(call, arguments)
        return
    with shim.watcher.call(call.name, call.sizes):
        session.run(call, arguments)


def _compiled() -> int | None:
    if shim.watcher is None:
        return None
    return sum(shim.watcher.tally.get(name) for name in _COMPILED)


@contextlib.contextmanager
def _same_random_numbers(device: str) -> Iterator[None]:
    """Leave the process's random numbers as they were: loading seeds them, as the build did."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if device == "cuda" else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)


def _tensors(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for number, value in enumerate(args):
        yield from _below("args.%d" % number, value)
    for name, value in kwargs.items():
        yield from _below(name, value)


def _below(name: str, value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).replace("torch.", "")
        yield {"name": name, "dtype": dtype, "shape": [int(size) for size in value.shape]}
    elif isinstance(value, Mapping):
        for key, below in value.items():
            yield from _below("%s.%s" % (name, key), below)
    elif isinstance(value, (list, tuple)):
        for number, below in enumerate(value):
            yield from _below("%s.%d" % (name, number), below)

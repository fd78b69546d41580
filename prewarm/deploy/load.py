"""``prewarm.load``: a model built, compiled and warmed exactly as declared.

For a server's own code.

Owns where the declaration comes from and what a recompile leads to. The part with torch is
``torchside/loading.py``.

- What was proven decides: the declaration is the one that the entry records, its mode the one that
  was built. For a cold start it is the registry's own, or what was proven in another environment.
- A model of which no declaration is known cannot be built at all: that is an error, whatever
  ``on_miss`` says.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, cast

from prewarm.deploy.activate import Activation, Asked, Paths, arrange
from prewarm.deploy.input_sizes import Call, call_of, sizes_text, toml_lines
from prewarm.deploy.outcome import TIMEOUT_S, OnMiss
from prewarm.deploy.recorded import Buildable, buildable
from prewarm.deploy.running_torchside import torchside_module
from prewarm.errors import ConfigError, NotWarm, PrewarmError, PrewarmWarning, Recompiled

OnRecompile = Literal["warn", "raise", "ignore"]

Inputs = list[dict[str, Any]]


class LoadedModel(Protocol):
    """A ``torch.nn.Module``: call it as the model; other attributes are the model's own."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Make one call, in the declared grad mode and autocast."""

    def __getattr__(self, name: str) -> Any:
        """Return what the model has under this name."""


def load(
    model: str,
    *,
    path: Paths | None = None,
    device: str | None = None,
    on_recompile: OnRecompile = "warn",
    on_miss: OnMiss = "cold",
    into: Paths | None = None,
    manifest: Paths | None = None,
    registry: Paths | None = None,
    trust: Sequence[str] = (),
    wait_s: float = 0.0,
    timeout_s: float = TIMEOUT_S,
) -> LoadedModel:
    """Return a model built and compiled exactly as declared, so that it cannot miss.

    Activates it first (``activate``), makes every declared call once, and gives back a module that
    enters the declared grad mode and autocast by itself. ``path`` is the checkpoint, where no
    registry is seen here. ``device`` is only checked: what was declared is what starts warm.

    After the declared calls, a call that torch would compile anew is told as a ``PrewarmWarning``;
    with ``on_recompile`` "raise" it raises ``Recompiled`` before anything is compiled, with
    "ignore" nothing is said.

    Raises:
        PrewarmError: the model cannot be built; with ``on_miss`` "fail", it does not start warm.
        Recompiled: by a call of what is returned.
    """
    asked = Asked(into, manifest, on_miss, registry, tuple(trust), wait_s, timeout_s)
    activation = arrange((model,), asked)
    activation.warn(stacklevel=2)
    found = _buildable(model, activation, _as_path(path), _registry(registry))
    declared = found.declaration["model"]["device"]
    if device not in (None, declared):
        raise ConfigError(
            f'{model}: is declared for device "{declared}", and is not warm on "{device}"; declare '
            "it, or choose a GPU with CUDA_VISIBLE_DEVICES"
        )
    eager = on_miss == "eager" and not activation.entries
    mode = None if eager else found.mode
    loaded, compiled = _load(model, found, mode, _told(model, found, on_recompile))
    if compiled and activation.warm:
        missed = NotWarm(
            f"{model}: its declared calls compiled {compiled} graphs and kernels all the same; "
            f"`prewarm drift {activation.directory}` tells why"
        )
        if on_miss == "fail":
            raise missed
        warnings.warn(str(missed), PrewarmWarning, stacklevel=2)
    return loaded


def _buildable(
    model: str, activation: Activation, path: Path | None, registry: Path | None
) -> Buildable:
    if activation.entries:
        return buildable(activation.entries[0], path=path, registry=registry)
    if registry is not None:
        # Only a start without a bundle needs the registry's side, and with it pydantic.
        from prewarm.deploy.declared_here import declared_here

        found = declared_here(model, registry=registry, path=path)
        if found is not None:
            return found
    if activation.elsewhere:
        return buildable(activation.elsewhere[0], path=path, registry=registry)
    why = activation.misses[0] if activation.misses else NotWarm(f"{model}: has no entry")
    raise NotWarm(
        f"{why}; and its declaration is not known here, so it cannot be built; name the registry "
        "with registry=",
        code=why.code,
    ) from why


def _load(
    model: str, found: Buildable, mode: str | None, told: Callable[[Inputs], None] | None
) -> tuple[LoadedModel, int | None]:
    protocol = torchside_module("protocol")
    try:
        loading = torchside_module("loading")
        loaded, compiled = loading.load(
            found.declaration, str(found.checkpoint), mode=mode, recompiling=told
        )
    except protocol.Refusal as error:
        raise PrewarmError(f"{model}: {error}", code=error.code) from error
    return cast(LoadedModel, loaded), compiled


def _told(
    model: str, found: Buildable, on_recompile: OnRecompile
) -> Callable[[Inputs], None] | None:
    """Return what is called when torch is about to compile anew, None to let it."""
    if on_recompile == "ignore":
        return None

    def recompiling(inputs: Inputs) -> None:
        text = _recompiled(model, inputs, found.shapes)
        if on_recompile == "raise":
            raise Recompiled(text)
        warnings.warn(text, PrewarmWarning, stacklevel=2)

    return recompiling


def _recompiled(model: str, inputs: Inputs, shapes: Sequence[Mapping[str, Any]]) -> str:
    call: Call | None = call_of(inputs, shapes)
    if call is None:
        given = ", ".join(f"{one['name']} {one['dtype']} {one['shape']}" for one in inputs)
        return (
            f"{model}: a call that is like none of its [[shapes]] ({given or 'no tensors'}) is "
            "compiled anew; declare it"
        )
    if not call.is_declared:
        return (
            f"{model}: a call with {sizes_text(call.sizes)} is compiled anew; to have it warm, "
            f"{toml_lines(call)}"
        )
    return (
        f"{model}: a declared call ({sizes_text(call.sizes)}) is compiled anew: an input's stride "
        "or type, a plain argument or a global is another one than at the call before"
    )


def _registry(given: Paths | None) -> Path | None:
    if given is not None:
        return Path(os.path.realpath(given))
    from prewarm.config import load_settings

    try:
        found = load_settings({}, os.environ).registry
    except PrewarmError:
        # A builder's settings need not be readable for a deployment.
        return None
    return None if found is None else Path(os.path.realpath(found))


def _as_path(given: Paths | None) -> Path | None:
    return None if given is None else Path(given)

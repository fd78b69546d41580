"""What the server compiles, done as the declaration's ``[compile]`` table says.

Where compiling happens is part of the cache key: wrapping the module, replacing ``forward`` and
compiling a submodule each give other graphs.
"""

from __future__ import annotations

from typing import Any

import torch

from .protocol import Refusal


def compile_targets(module: Any, section: dict[str, Any], mode: str) -> Any:
    """Compile the declared targets with ``torch.compile`` and return what the server then calls."""
    _apply_config(section.get("config") or {})
    called = module
    for target in section.get("targets") or [{"at": "."}]:
        if target.get("regional") or section.get("regional"):
            raise Refusal(
                "not_yet", "[compile] regional = true is not built by this version of prewarm"
            )
        options = {
            "mode": mode,
            "dynamic": None if section["dynamic"] == "auto" else section["dynamic"],
            "fullgraph": bool(target.get("fullgraph") or section.get("fullgraph")),
        }
        at = target.get("at") or "."
        if at == ".":
            called = torch.compile(module, **options)
            continue
        *parents, name = at.split(".")
        owner = module
        for parent in parents:
            owner = _attribute(owner, parent, at)
        setattr(owner, name, torch.compile(_attribute(owner, name, at), **options))
    return called


def _attribute(owner: Any, name: str, at: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise Refusal(
            "bad_declaration",
            "[compile] targets: %r: %s has no %r" % (at, type(owner).__name__, name),
        ) from error


def _apply_config(settings: dict[str, Any]) -> None:
    """Set inductor's settings for this process, as the server must do too."""
    import torch._inductor.config as inductor

    for name, value in settings.items():
        owner: Any = inductor
        *parents, last = name.split(".")
        for parent in parents:
            owner = getattr(owner, parent, None)
        if owner is None or not hasattr(owner, last):
            raise Refusal(
                "bad_declaration",
                "[compile] config: inductor of torch %s has no setting %r"
                % (torch.__version__, name),
            )
        setattr(owner, last, value)


def call_once(
    called: Any, shape_set: dict[str, Any], args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Make one declared call: the module itself, or its method of the declared name."""
    name = shape_set.get("call") or "."
    if name == ".":
        return called(*args, **kwargs)
    method = getattr(called, name, None)
    if method is None:
        raise Refusal(
            "bad_declaration",
            "[[shapes]] %s: call = %r, but %s has no such method"
            % (shape_set.get("name"), name, type(called).__name__),
        )
    return method(*args, **kwargs)

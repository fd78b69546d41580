"""From a declaration and a checkpoint to an eager module: one function for each loader.

The libraries that a loader needs are imported when it is asked for, under the deployment's
interpreter.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from typing import Any

import torch

from .inputs import dtype_of
from .protocol import Refusal


def load_module(model: dict[str, Any], checkpoint: str) -> Any:
    """Return the module, in eval mode, on its device, as a server would have it.

    Raises ``Refusal`` where the declaration does not fit; whatever the model's own code raises
    passes through.
    """
    for directory in reversed(model.get("path") or []):
        if directory not in sys.path:
            sys.path.insert(0, directory)
    os.environ["PREWARM_CHECKPOINT"] = checkpoint
    torch.manual_seed(0)
    loader = _LOADERS.get(model["loader"])
    if loader is None:
        raise Refusal(
            "not_yet", "loader %r is not built by this version of prewarm" % model["loader"]
        )
    module = loader(model, checkpoint)
    module = _set_up(model, module)
    return _place(model, module)


def _transformers(model: dict[str, Any], checkpoint: str) -> Any:
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise Refusal(
            "missing_library",
            'loader = "transformers" needs the package transformers in %s (%s); install it there, '
            "or name the deployment's python in [model] interpreter" % (sys.executable, error),
        ) from error
    name = model.get("class") or "AutoModel"
    made = getattr(transformers, name, None)
    if made is None:
        raise Refusal("bad_declaration", "[model] class: transformers has no %r" % name)
    kwargs = dict(model.get("kwargs") or {})
    if model.get("dtype"):
        kwargs.setdefault("dtype", dtype_of(model["dtype"]))
    if model.get("weights") == "random":
        config = transformers.AutoConfig.from_pretrained(checkpoint, local_files_only=True)
        dtype = kwargs.pop("dtype", None)
        build = made.from_config if hasattr(made, "from_config") else made._from_config
        return build(config, **({"dtype": dtype} if dtype is not None else {}), **kwargs)
    module, info = made.from_pretrained(
        checkpoint, local_files_only=True, output_loading_info=True, **kwargs
    )
    _refuse_bad_weights(info)
    return module


def _refuse_bad_weights(info: dict[str, Any]) -> None:
    """Refuse weights that transformers would only warn about.

    It fills what is missing with random numbers.
    """
    mismatched = info.get("mismatched_keys") or []
    missing = sorted(info.get("missing_keys") or [])
    if mismatched:
        raise Refusal(
            "bad_weights", "weights do not fit: %s" % _few([str(key) for key in mismatched])
        )
    if missing:
        raise Refusal("bad_weights", "weights are missing in the checkpoint: %s" % _few(missing))


def _torch(model: dict[str, Any], checkpoint: str) -> Any:
    module = _call_factory(model, checkpoint, hands_checkpoint=False)
    if model.get("weights") == "random":
        return module
    path = _weights_file(model, checkpoint)
    state = _read_state(path)
    name = os.path.basename(path)
    try:
        module.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise Refusal(
            "bad_weights", "%s does not fit the module: %s" % (name, str(error)[:500])
        ) from error
    return module


def _weights_file(model: dict[str, Any], checkpoint: str) -> str:
    if model.get("state_dict"):
        path = os.path.join(checkpoint, model["state_dict"])
        if not os.path.isfile(path):
            raise Refusal(
                "bad_weights",
                "[model] state_dict: %s is not in the checkpoint" % model["state_dict"],
            )
        return path
    if os.path.isfile(checkpoint):
        return checkpoint
    found = sorted(
        name
        for name in os.listdir(checkpoint)
        if name.endswith((".safetensors", ".pt", ".pth", ".bin")) and not name.startswith(".")
    )
    if len(found) != 1:
        raise Refusal(
            "bad_declaration",
            'loader = "torch" needs [model] state_dict to name the weights; the checkpoint holds %s'
            % (_few(found) or "none"),
        )
    return os.path.join(checkpoint, found[0])


def _read_state(path: str) -> Any:
    if path.endswith(".safetensors"):
        try:
            from safetensors.torch import load_file
        except ImportError as error:
            raise Refusal(
                "missing_library", "%s needs the package safetensors: %s" % (path, error)
            ) from error
        return load_file(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise Refusal(
            "bad_weights",
            "%s is no weights-only file (%s); save the state_dict alone"
            % (os.path.basename(path), first[:300]),
        ) from error
    if isinstance(state, dict) and "state_dict" in state and isinstance(state["state_dict"], dict):
        return state["state_dict"]
    return state


def _python(model: dict[str, Any], checkpoint: str) -> Any:
    module = _call_factory(model, checkpoint, hands_checkpoint=True)
    if model.get("state_dict") and model.get("weights") != "random":
        state = _read_state(_weights_file(model, checkpoint))
        try:
            module.load_state_dict(state, strict=True)
        except RuntimeError as error:
            raise Refusal(
                "bad_weights",
                "%s does not fit the module: %s" % (model["state_dict"], str(error)[:500]),
            ) from error
    return module


def _export(model: dict[str, Any], checkpoint: str) -> Any:
    path = checkpoint
    if os.path.isdir(checkpoint):
        found = sorted(name for name in os.listdir(checkpoint) if name.endswith(".pt2"))
        if len(found) != 1:
            raise Refusal(
                "bad_checkpoint",
                'loader = "export" needs one .pt2 file; found %s' % (_few(found) or "none"),
            )
        path = os.path.join(checkpoint, found[0])
    return torch.export.load(path).module()


def _call_factory(model: dict[str, Any], checkpoint: str, hands_checkpoint: bool) -> Any:
    """Import and call ``pkg.mod:fn``.

    A ``python`` factory that takes one more parameter gets the checkpoint's path.

    The path is handed over as the parameter named ``checkpoint``, or as the first positional
    parameter without a default that the declaration's ``kwargs`` do not give.
    """
    factory = _imported(model.get("factory") or "", "factory")
    kwargs = dict(model.get("kwargs") or {})
    if hands_checkpoint:
        parameters = _parameters(factory)
        if "checkpoint" in parameters and "checkpoint" not in kwargs:
            kwargs["checkpoint"] = checkpoint
        else:
            open_ones = [
                name
                for name, parameter in parameters.items()
                if parameter.default is parameter.empty
                and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
                and name not in kwargs
            ]
            if open_ones:
                return _checked(factory(checkpoint, **kwargs), model)
    return _checked(factory(**kwargs), model)


def _parameters(factory: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(factory).parameters)
    except (TypeError, ValueError):
        return {}


def _checked(module: Any, model: dict[str, Any]) -> Any:
    if not isinstance(module, torch.nn.Module):
        raise Refusal(
            "bad_declaration",
            "[model] factory: %s returned %s, expected a torch.nn.Module"
            % (model.get("factory"), type(module).__name__),
        )
    return module


def _imported(name: str, key: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Refusal(
            "bad_declaration", '[model] %s: %r is not "package.module:name"' % (key, name)
        )
    try:
        found = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise Refusal(
            "cannot_import",
            "[model] %s: %s cannot be imported: %s; check `path` and the interpreter %s"
            % (key, name, error, sys.executable),
        ) from error
    return found


def _set_up(model: dict[str, Any], module: Any) -> Any:
    if not model.get("setup"):
        return module
    made = _imported(model["setup"], "setup")(module)
    return _checked(module if made is None else made, model)


def _place(model: dict[str, Any], module: Any) -> Any:
    module = module.to(model.get("device") or "cpu")
    if model.get("dtype") and model["loader"] != "transformers":
        module = module.to(dtype_of(model["dtype"]))
    if model.get("memory_format"):
        module = module.to(memory_format=getattr(torch, model["memory_format"]))
    if model["loader"] != "export":  # an exported module has its mode burnt in; eval() raises there
        module = module.eval()
    if model.get("requires_grad") is False:
        module = module.requires_grad_(False)
    return module


def _few(names: list[str]) -> str:
    return ", ".join(names[:5]) + (" and %d more" % (len(names) - 5) if len(names) > 5 else "")


_LOADERS = {"transformers": _transformers, "torch": _torch, "python": _python, "export": _export}

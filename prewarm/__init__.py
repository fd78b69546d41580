"""prewarm: proven warm starts for ``torch.compile`` under max-autotune.

A server's own code has two calls: ``prewarm.activate(model)`` before torch is used, and
``prewarm.load(model)``, which gives the module built and compiled as declared. Importing the
package imports nothing else; both need the standard library and torch alone where a hook ran
before.

The package also holds the builder (``registry``, ``build``, ``store``, ``serve``), the deployment's
side (``deploy``) and the command line (``cli``). Only ``torchside`` imports torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prewarm.deploy.activate import Activation, activate
    from prewarm.deploy.load import LoadedModel, load
    from prewarm.errors import PrewarmError, PrewarmWarning, Recompiled, TooLate

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "LoadedModel",
    "PrewarmError",
    "PrewarmWarning",
    "Recompiled",
    "TooLate",
    "__version__",
    "activate",
    "load",
]

#: Imported when they are asked for.
_PLACES = {
    "Activation": "prewarm.deploy.activate",
    "LoadedModel": "prewarm.deploy.load",
    "PrewarmError": "prewarm.errors",
    "PrewarmWarning": "prewarm.errors",
    "Recompiled": "prewarm.errors",
    "TooLate": "prewarm.errors",
    "activate": "prewarm.deploy.activate",
    "load": "prewarm.deploy.load",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'prewarm' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_PLACES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Variables that keep a bundle from being read: caches off, compiling off, caches elsewhere.

Pure. Owns their names, the values that torch and Triton take for on and off, and what each costs.
They are told by themselves and are then no facts of the environment any more.

Read in torch 2.13: torch/compiler/config.py, torch/_inductor/config.py, torch/_functorch/config.py
(through torch/utils/_config_module.py), torch/_dynamo/config.py and eval_frame.py; in Triton 3.6:
triton/knobs.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from prewarm.environment import Difference, Environment, with_variables

#: The stable word of a miss for one of them.
CODE = "fatal_variable"

NO_COMPILE = "nothing is compiled, the model runs in eager mode"
NO_CACHE = "every start compiles everything"
NO_TRITON = "every start compiles every Triton kernel"

_TRITON_ON = frozenset({"1", "true", "yes", "on", "y"})


def _is_one(value: str) -> bool:
    return value == "1"


def _is_forced_on(value: str) -> bool:
    # "0" is false, "1" true, and any other text is itself: true unless empty.
    return value not in ("0", "")


def _is_forced_off(value: str) -> bool:
    return value in ("0", "")


def _is_triton_on(value: str) -> bool:
    return value.lower() in _TRITON_ON


def _is_set(value: str) -> bool:
    return bool(value)


#: Name, what value is fatal, the cost, and whether it concerns a GPU alone.
_FATAL: tuple[tuple[str, Callable[[str], bool], str, bool], ...] = (
    ("TORCHDYNAMO_DISABLE", _is_one, NO_COMPILE, False),
    ("TORCH_COMPILE_DISABLE", _is_one, NO_COMPILE, False),
    ("TORCHINDUCTOR_FORCE_DISABLE_CACHES", _is_forced_on, NO_CACHE, False),
    ("TORCH_COMPILE_FORCE_DISABLE_CACHES", _is_forced_on, NO_CACHE, False),
    ("TORCHINDUCTOR_FX_GRAPH_CACHE", _is_forced_off, NO_CACHE, False),
    ("TORCHINDUCTOR_FX_GRAPH_CACHE_DEFAULT", _is_forced_off, NO_CACHE, False),
    (
        "TORCHINDUCTOR_AUTOGRAD_CACHE",
        _is_forced_off,
        "every start traces and partitions every graph again",
        False,
    ),
    ("TRITON_ALWAYS_COMPILE", _is_triton_on, NO_TRITON, True),
    ("TRITON_INTERPRET", _is_triton_on, "Triton kernels are interpreted, not compiled", True),
    ("TRITON_CACHE_MANAGER", _is_set, "Triton's kernels are not read from the bundle", True),
)

#: Switches the shim's mends (torchside/mends.py).
MENDS = "PREWARM_MENDS"

#: Where torch and Triton cache. The hook's env file sets both.
_DIRECTORIES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
#: A cache in a private tree of the hook: ``D/<digest of the bundles>/inductor``.
_PRIVATE = re.compile(r".*/[0-9a-f]{32}/(?:inductor|triton)/?")

_NOTHING: Mapping[str, str] = MappingProxyType({})


def fatal_variables(
    environ: Mapping[str, str], *, device: str = "cuda", own: Mapping[str, str] = _NOTHING
) -> tuple[Difference, ...]:
    """Return the variables that switch caches or compiling off, for a model on ``device``.

    ``own`` are variables that prewarm itself sets for this start, and so are none.
    """
    return tuple(
        Difference(name, None, environ[name], cost)
        for name, is_fatal, cost, needs_gpu in _FATAL
        if name in environ
        and is_fatal(environ[name])
        and own.get(name) != environ[name]
        and not (needs_gpu and device == "cpu")
    )


def mends_off(environ: Mapping[str, str], requires: Sequence[str]) -> tuple[Difference, ...]:
    """Return the variable that switches the shim's mends off, where the entry needs them.

    ``requires`` is the entry's; a list of names leaves some mend out, and which one it needs is not
    recorded.
    """
    switch = environ.get(MENDS)
    if not switch or "shim" not in requires:
        return ()
    return (Difference(MENDS, None, switch, "it was proven with the shim's mends alone"),)


def other_directories(environ: Mapping[str, str]) -> tuple[Difference, ...]:
    """Return the variables that name a cache directory which is no private tree of the hook."""
    return tuple(
        Difference(
            name,
            None,
            environ[name],
            "the bundle is not read, unless the hook's env file is read after it: who sets the "
            "variable last wins",
        )
        for name in _DIRECTORIES
        if environ.get(name) and not _PRIVATE.fullmatch(environ[name])
    )


def without_fatal(present: Environment, fatal: tuple[Difference, ...]) -> Environment:
    """Return an environment less the fatal variables, which are told by themselves."""
    names = {found.fact for found in fatal}
    return with_variables(present, lambda name: name not in names)

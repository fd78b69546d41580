"""Started by every Python that has the shim's directory on ``PYTHONPATH``.

Python imports a single ``sitecustomize``; the one that would have been found without ours is run
afterwards and takes our place, so that nobody loses theirs. Without prewarm's variables this file
does nothing more. What stands here and below it runs at every start of every Python, so it imports
next to nothing: the rest waits for torch.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _chain_foreign() -> None:
    """Run the ``sitecustomize`` that stands behind ours on ``sys.path``, if there is one.

    Only what is behind: of two shims on one path, each would find the other for ever.
    """
    places = [os.path.abspath(entry or ".") for entry in sys.path]
    if _HERE not in places:
        return
    behind = sys.path[places.index(_HERE) + 1 :]
    for finder in sys.meta_path:
        # importlib.machinery, where its name is public, takes a millisecond to import.
        if getattr(finder, "__name__", "") != "PathFinder":
            continue
        spec = finder.find_spec("sitecustomize", behind)
        if spec is not None and spec.loader is not None and spec.origin != __file__:
            from importlib.util import module_from_spec

            module = module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)
        return


if "PREWARM_REPORT_DIR" in os.environ or "PREWARM_DIR" in os.environ:
    try:
        from prewarm_torchside import shim

        shim.start(os.environ)
    except Exception as error:  # a shim must never keep a server from starting
        sys.stderr.write("prewarm: the shim is off: %s: %s\n" % (type(error).__name__, error))
_chain_foreign()

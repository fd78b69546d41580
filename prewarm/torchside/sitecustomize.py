"""Started by every Python that has the shim's directory on ``PYTHONPATH``.

Python imports a single ``sitecustomize``; the one that would have been found without ours is
imported afterwards, so that nobody loses theirs. Without prewarm's variables this file does nothing
more.
"""

from __future__ import annotations

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _chain_foreign() -> None:
    """Run the ``sitecustomize`` that stands behind ours on ``sys.path``, if there is one."""
    from importlib.machinery import PathFinder

    behind = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", behind)
    if spec is None or spec.loader is None or spec.origin == __file__:
        return
    from importlib.util import module_from_spec

    spec.loader.exec_module(module_from_spec(spec))


if "PREWARM_REPORT_DIR" in os.environ or "PREWARM_DIR" in os.environ:
    try:
        from prewarm_torchside import shim

        shim.start(os.environ)
    except Exception as error:  # a shim must never keep a server from starting
        sys.stderr.write("prewarm: the shim is off: %s: %s\n" % (type(error).__name__, error))
_chain_foreign()

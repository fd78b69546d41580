"""The last comparison: what the private directory was filled for, against this very process.

A hook compares before a server starts, but an init container sees neither its GPU nor its Python.
What differs is told in one line and in the start report. Most differences only make torch miss, and
compile; a few make it hit and answer wrongly. Then the caches are left alone: this process uses
torch's own places instead.

Standard library only until torch is there. Facts are read as ``facts.py`` reads them.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping
    from types import ModuleType
    from typing import Any

    from .deployment import Deployment

    Facts = Mapping[str, str | None]
    Tell = Callable[..., None]

#: With another value of these a hit is no answer: other machine code, kernels of another device.
REFUSED = ("machine", "cpu_isa", "device", "capability", "sm_count")


class Comparison:
    """Compares this process with recorded environments and tells each differing fact once."""

    def __init__(
        self,
        deployment: Deployment,
        environ: MutableMapping[str, str],
        tell: Tell,
    ) -> None:
        self.refused = False
        self._deployment = deployment
        self._environ = environ
        self._tell = tell
        self._told: set[str] = set()

    def start(self, torch_dir: str | None) -> None:
        """Compare what can be read before torch's code runs."""
        self._compare(_own_facts(torch_dir))

    def watch_device(self, graphs: ModuleType) -> bool:
        """Compare the GPU when the first graph comes to ``torch._inductor.compile_fx``.

        Not before: whoever asks a GPU something must not fork any more.
        """
        inner: Any = getattr(graphs, "compile_fx", None)
        if inner is None or not self._deployment.has_device:
            return False
        asked: list[bool] = []

        @functools.wraps(inner)
        def compile_fx(*args: Any, **kwargs: Any) -> Any:
            if not asked:
                try:
                    facts = _device_facts()
                    self._compare(facts)
                    asked.extend([True] if facts else [])
                except Exception as error:
                    asked.append(False)
                    sys.stderr.write("prewarm: the GPU is not compared: %s\n" % error)
            return inner(*args, **kwargs)

        graphs.compile_fx = compile_fx  # type: ignore[attr-defined]
        return True

    def _compare(self, present: Facts) -> None:
        for fact, here in present.items():
            recorded = sorted(
                {
                    str(facts[fact])
                    for facts in self._deployment.environments.values()
                    if facts.get(fact)
                }
            )
            if not recorded or here is None or recorded == [here] or fact in self._told:
                continue
            self._told.add(fact)
            self._differs(fact, " or ".join(recorded), here)

    def _differs(self, fact: str, recorded: str, here: str) -> None:
        refused = fact in REFUSED
        cost = "this start compiles"
        if refused:
            cost = "its caches are not used, this start is cold"
            self._leave_caches()
        sys.stderr.write(
            "prewarm: %s is %s here, the bundle was built with %s; %s\n"
            % (fact.replace("_", " "), here or "empty", recorded, cost)
        )
        self._tell("differs", fact=fact, recorded=recorded, present=here, refused=refused)

    def _leave_caches(self) -> None:
        self.refused = True
        for name, path in self._deployment.caches.items():
            if self._environ.get(name) in (None, path) or _is_below(self._environ[name], path):
                self._environ.pop(name, None)


def _is_below(path: str, place: str) -> bool:
    """Tell whether a path is that place under whatever name, such as a mount's."""
    try:
        return os.path.samefile(path, place)
    except OSError:
        return False


def _own_facts(torch_dir: str | None) -> dict[str, str | None]:
    from .facts import build_paths, cpu_isa
    from .facts_packages import version_file

    torch = version_file(torch_dir)
    return {
        "machine": os.uname().machine,
        "cpu_isa": cpu_isa(),
        "torch": torch.get("__version__"),
        "torch_git": torch.get("git_version"),
        "cuda": torch.get("cuda"),
        "python_abi": str(sysconfig.get_config_var("SOABI")),
        "build_paths": build_paths(torch_dir) if torch_dir else None,
    }


def _device_facts() -> dict[str, str | None]:
    """Ask torch about the present GPU; nothing where this process has used none yet."""
    import torch

    if not torch.cuda.is_initialized():
        return {}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "device": str(properties.name),
        "capability": "%d.%d" % (properties.major, properties.minor),
        "sm_count": str(properties.multi_processor_count),
    }

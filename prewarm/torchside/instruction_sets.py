"""Which instruction sets this CPU's C++ code may use: torch's answers, kept from the build.

At each start torch finds out by loading trial objects in Python children, one after another: a
second of a warm start, with 2.9 five times ``import torch``. What the trials depend on is the
compiler, torch and the CPU. So the build records each answer beside the caches, under a fingerprint
of those three, and a start that finds its own fingerprint there takes them. What the CPU itself can
do torch asks anew at each start, in this process, and it is not touched here.

- Another fingerprint, a damaged record, a trial that is not in it: torch tries for itself.
- A wrong answer would be another code, so a full compile: that is why the fingerprint is torch's
  own, as it names the trial objects by it.

Seen: ``VecISA.check_build(code)`` in 2.9.1 and 2.14.1 by test, 2.13.0 by test.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os

from .imports import when_imported

TYPE_CHECKING = False  # typing is not imported in a shim; type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType
    from typing import Any

MODULE = "torch._inductor.cpu_vec_isa"

#: In the directory of Inductor's caches, so that it is packed and unpacked with them.
FILE_NAME = "prewarm-instruction-sets.json"

FORMAT = 1

_LIMIT_BYTES = 1 << 20


class Recorder:
    """Notes the answers of a build and writes them beside its caches."""

    def __init__(self) -> None:
        self._answers: dict[str, bool] = {}
        self._module: ModuleType | None = None

    def start(self) -> None:
        """Note each answer from now on; nothing where this torch asks in another way."""
        when_imported(frozenset((MODULE,)), self._watch)

    def _watch(self, module: ModuleType) -> None:
        inner = _check_build(module)
        if inner is None:
            return
        self._module = module

        @functools.wraps(inner)
        def check_build(self_: Any, code: str) -> bool:
            name = _trial(self_, code)
            answer = bool(inner(self_, code))
            self._answers[name] = answer
            return answer

        module.VecISA.check_build = check_build

    def write(self, cache_dir: str) -> None:
        """Write what was noted, if anything, whole."""
        if self._module is None or not self._answers:
            return
        found = {
            "format": FORMAT,
            "fingerprint": _fingerprint(self._module),
            "answers": self._answers,
        }
        path = os.path.join(cache_dir, FILE_NAME)
        beside = path + ".%d" % os.getpid()
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(found, file, sort_keys=True)
        os.replace(beside, path)


def reuse(module: ModuleType, environ: Mapping[str, str]) -> bool:
    """Let torch take the recorded answers that hold here; return whether there are any."""
    inner = _check_build(module)
    recorded = _read(environ.get("TORCHINDUCTOR_CACHE_DIR"))
    if inner is None or recorded is None:
        return False
    held: list[bool] = []

    @functools.wraps(inner)
    def check_build(self: Any, code: str) -> bool:
        if not held:  # asked with the first trial: it runs the compiler for its version
            held.append(_fingerprint(module) == recorded["fingerprint"])
        answer = recorded["answers"].get(_trial(self, code)) if held[0] else None
        return answer if isinstance(answer, bool) else bool(inner(self, code))

    module.VecISA.check_build = check_build
    return True


def _check_build(module: ModuleType) -> Callable[..., Any] | None:
    """Return torch's trial, if this release has it and names it as we know."""
    check: Callable[..., Any] | None = getattr(getattr(module, "VecISA", None), "check_build", None)
    if check is None or not hasattr(module, "_get_isa_dry_compile_fingerprint"):
        return None
    return check if check.__code__.co_varnames[:2] == ("self", "code") else None


def _trial(isa: Any, code: str) -> str:
    text = "%s\0%s\0%s" % (type(isa).__name__, isa.build_arch_flags(), code)
    return hashlib.sha256(text.encode()).hexdigest()


def _fingerprint(module: Any) -> str:
    """Digest the compiler's word about itself, torch's version and the CPU's flags."""
    from .facts import cpu_isa

    text = "%s\0%s\0%s" % (
        module._get_isa_dry_compile_fingerprint(""),
        os.uname().machine,
        cpu_isa(),
    )
    return hashlib.sha256(text.encode()).hexdigest()


def _read(cache_dir: str | None) -> dict[str, Any] | None:
    if not cache_dir:
        return None
    try:
        with open(os.path.join(cache_dir, FILE_NAME), encoding="utf-8") as file:
            found = json.loads(file.read(_LIMIT_BYTES))
        usable = found["format"] == FORMAT and isinstance(found["answers"], dict)
        return found if usable and isinstance(found["fingerprint"], str) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None

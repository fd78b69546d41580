"""Doctor's checks of the interpreter, torch, the compiler and the GPU.

Owns which torch releases are supported and which upstream faults apply to which release. Nothing is
compiled and torch is not imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prewarm.build.gpu import list_gpus
from prewarm.cli.finding import Finding
from prewarm.deploy.fatal_variables import fatal_variables, other_directories, without_fatal
from prewarm.environment import Environment
from prewarm.errors import ConfigError
from prewarm.present import present_environment

#: Releases that prewarm is tested with; the watcher reaches into torch's own functions.
OLDEST_TORCH = (2, 9)
NEWEST_TORCH = (2, 14)

#: The release whose `CachingAutotuner.recheck_autotune_cache` no longer tunes again at each start.
_RETUNING_FIXED = (2, 13)


def check_machine(interpreter: Sequence[str], environ: Mapping[str, str]) -> list[Finding]:
    """Check what runs the models: Python, torch, the C++ compiler, the GPU and known faults."""
    try:
        present = present_environment(interpreter, device="cuda", threads=0, library="")
    except ConfigError as error:
        return [Finding("interpreter", "fail", str(error), "name a Python of 3.10 or newer")]
    return [
        Finding("interpreter", "ok", f"{' '.join(interpreter) or 'own'} ({present.get('python')})"),
        _torch(present),
        _compiler(present, environ),
        *_gpu(present),
        *_faults(present),
        *_variables(present, environ),
    ]


def _torch(present: Environment) -> Finding:
    found = present.get("torch")
    if found is None:
        return Finding(
            "torch",
            "fail",
            "not found by this interpreter",
            "pip install 'torch-prewarm[transformers]', or name the deployment's Python "
            "with --interpreter",
        )
    release = _release(found)
    supported = f"{OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} to {NEWEST_TORCH[0]}.{NEWEST_TORCH[1]}"
    if release < OLDEST_TORCH:
        return Finding("torch", "fail", f"{found} is too old", f"install torch {supported}")
    if release > NEWEST_TORCH:
        return Finding(
            "torch",
            "warn",
            f"{found} is newer than what prewarm was tested with ({supported})",
            "trust only what `prewarm scan` proves with it",
        )
    return Finding("torch", "ok", f"{found} ({supported} are supported)")


def _compiler(present: Environment, environ: Mapping[str, str]) -> Finding:
    found = present.get("cxx_version")
    if found is not None:
        return Finding("C++ compiler", "ok", found)
    wanted = environ.get("CXX", "g++")
    how = "is not there" if present.get("cxx") is None else "is there but does not run"
    return Finding(
        "C++ compiler",
        "fail",
        f"{wanted} {how}; a CPU start needs one even on a perfect hit",
        "apt-get install g++, or set CXX",
    )


def _gpu(present: Environment) -> list[Finding]:
    name = present.get("device")
    built_for = present.get("cuda")
    if name is None:
        seen = _listed_names()
        if seen:
            return [
                Finding(
                    "GPU",
                    "warn",
                    f"the driver manages {', '.join(seen)}, but CUDA finds no device here",
                    "check CUDA_VISIBLE_DEVICES and the access to /dev/nvidia*",
                )
            ]
        return [Finding("GPU", "ok", "no GPU: CPU builds only")]
    told = f"{name}, capability {present.get('capability')}, {present.get('sm_count')} SMs"
    findings = [Finding("GPU", "ok", f"{told}, driver {present.get('driver')}")]
    if built_for is None:
        findings.append(
            Finding("GPU", "warn", "torch was built without CUDA", "install a CUDA build of torch")
        )
    elif present.get("triton") is None:
        findings.append(
            Finding(
                "triton",
                "fail",
                "not found; torch cannot compile for the GPU without it",
                "install the triton that belongs to this torch",
            )
        )
    return findings


def _listed_names() -> list[str]:
    """Return the names of the GPUs that the driver manages, which CUDA may not show us."""
    return [gpu.name for gpu in list_gpus().gpus]


def _faults(present: Environment) -> list[Finding]:
    """Tell the faults of this torch release that touch warm starts."""
    found = present.get("torch")
    if found is None:
        return []
    findings = []
    if present.get("device") is not None and _release(found) < _RETUNING_FIXED:
        findings.append(
            Finding(
                "upstream",
                "warn",
                f"torch {found} tunes again at every start, also on a hit (pytorch #172819)",
                "start with the shim (PYTHONPATH=DIR/shim), or use torch 2.13 or newer",
            )
        )
    return findings


def _variables(present: Environment, environ: Mapping[str, str]) -> list[Finding]:
    fatal = fatal_variables(environ)
    findings = [
        Finding("variables", "fail", f"{one.fact} is {one.present!r} here: {one.cost}", "unset it")
        for one in fatal
    ]
    findings += [
        Finding(
            "variables",
            "warn",
            f"{one.fact} is {one.present!r} here: {one.cost}",
            "unset it, or let the hook's env file be read last",
        )
        for one in other_directories(environ)
    ]
    told = without_fatal(present, fatal).get("variables") or "{}"
    if told == "{}":
        return findings
    return [
        *findings,
        Finding(
            "variables",
            "warn",
            f"set here and part of the environment: {told}",
            "set the same in every deployment, or unset them for the build",
        ),
    ]


def _release(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)

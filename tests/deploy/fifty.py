"""Hooks of many deployments at the same moment: forks of one process, each with its directory.

    python fifty.py COUNT URL KEY ROOT

Prints a JSON list with what each ended with. Forked after the imports, so that fifty take seconds.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import prewarm.deploy.builder
import prewarm.deploy.download
from prewarm.deploy.address import address_of
from prewarm.deploy.hook import run_hook
from prewarm.deploy.outcome import Wanted


def main(count: int, url: str, key: str, root: Path) -> None:
    gate, opened = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(opened)
            os.read(gate, 1)  # until the parent lets all of them go
            os._exit(start(url, key, root / f"D{number}"))
        children.append(child)
    os.close(opened)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    print(json.dumps(codes))


def start(url: str, key: str, into: Path) -> int:
    wanted = Wanted(
        models=("minilm/v1",), into=into, manifest=address_of(url), interpreter=(), on_miss="fail",
        trust=(key,), timeout_s=60.0,
    )  # fmt: skip
    try:
        outcome = run_hook(wanted, os.environ)
    except BaseException as error:
        print(f"{into.name}: {error}", file=sys.stderr)
        return 1
    return 0 if outcome.prepared is not None and outcome.prepared.filled else 2


if __name__ == "__main__":
    assert prewarm.deploy.builder
    assert prewarm.deploy.download
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))

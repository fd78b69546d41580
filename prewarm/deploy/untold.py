"""Starts that no builder was told of, since it was away or the process was killed: told by a hook.

Owns which starts those are and that each is told once. How a report is sent is ``torchside``'s.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

from prewarm.deploy.current import REPORTS
from prewarm.deploy.start_reports import torchside_by_path

#: What a start notes beside its events once it was told; empty while it is being told.
TOLD = "told"

#: A start without an event for so long is not about to tell itself, in seconds.
_SILENT_S = 120.0

#: For all of them: a hook is not late for it.
_LIMIT_S = 1.0


def tell_untold(into: Path, *, now_s: float, limit_s: float = _LIMIT_S) -> str | None:
    """Tell the builder of ``env.json`` of earlier starts; return why one could not be, if so."""
    waiting = [start for start in _starts(into) if _is_untold(start, now_s)]
    if not waiting:
        return None
    deployment = torchside_by_path("deployment").read_deployment(str(into))
    to = deployment.reports.get("to") if deployment is not None else None
    if not isinstance(to, str):
        return None
    sending = torchside_by_path("sending")
    ends_s = time.monotonic() + limit_s
    for start in waiting:
        mark = start / TOLD
        try:
            mark.unlink(missing_ok=True)  # of a process that ended while it told
            mark.touch(exist_ok=False)
            left_s = ends_s - time.monotonic()
            ids = sending.send_reports(deployment, str(start), to, limit_s=left_s)
            mark.write_text(json.dumps({"to": to, "at_s": now_s, "ids": ids}), encoding="utf-8")
        except FileExistsError:
            continue  # another hook tells it
        except Exception as error:
            with suppress(OSError):
                mark.unlink()
            return f"{len(waiting)} earlier start(s) are not told to {to}: {error}"
    return None


def _starts(into: Path) -> list[Path]:
    try:
        return sorted(path for path in (into / REPORTS).iterdir() if path.is_dir())
    except OSError:
        return []


def _is_untold(start: Path, now_s: float) -> bool:
    try:
        found = {path.name: path.stat() for path in start.iterdir()}
    except OSError:
        return False
    told = found.get(TOLD)
    events = [stat.st_mtime for name, stat in found.items() if name.endswith(".jsonl")]
    is_told = told is not None and told.st_size > 0
    return not is_told and bool(events) and now_s - max(events) > _SILENT_S

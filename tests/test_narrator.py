"""What a service tells of errors: ours by their code, those of the system as they are."""

from __future__ import annotations

import io
import json

from prewarm.build.child import Interrupted
from prewarm.build.job_board import JobBoard
from prewarm.errors import NotWritable
from prewarm.log import Log
from prewarm.narrator import Narrator
from prewarm.notify import Notifier


def test_every_kind_of_trouble_is_one_line_and_the_end_is_none() -> None:
    told = io.StringIO()
    narrator = Narrator(Log(told, form="json"), Notifier({}), JobBoard())
    narrator.trouble(NotWritable("the disk refuses"))
    narrator.trouble(OSError(5, "Input/output error", "/state/work/x"))
    narrator.trouble(Interrupted("interrupted"))
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    assert [(line["event"], line["code"]) for line in lines] == [
        ("trouble", "not_writable"),
        ("trouble", "error"),
    ]
    assert lines[1]["detail"] == "OSError: [Errno 5] Input/output error: '/state/work/x'"

"""An interpreter of another machine: it tells facts of its own, as that machine's would.

``machine.py JSON FILE …``: where FILE is ``facts.py``, its facts are printed with those of JSON in
place of what is here.
"""

import contextlib
import io
import json
import runpy
import sys

changed = json.loads(sys.argv[1])
sys.argv = sys.argv[2:]
told = io.StringIO()
with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
    runpy.run_path(sys.argv[0], run_name="__main__")
print(json.dumps(json.loads(told.getvalue()) | changed))

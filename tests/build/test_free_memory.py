from __future__ import annotations

import platform
import subprocess
import sys

import pytest

CODE = """
import threading
from pathlib import Path
from prewarm.build.free_memory import give_memory_back

def resident_kb():
    [line] = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in x]
    return int(line.split()[1])

def use():
    # Pieces too small for a mapping of their own, with one that stays above them.
    pieces = [bytes(2_000) for _ in range(40_000)]
    kept.append(bytes(2_000))

kept = []
thread = threading.Thread(target=use)
thread.start()
thread.join()
before = resident_kb()
give_memory_back()
print(before - resident_kb())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps it")
def test_what_a_thread_used_at_its_peak_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 30_000

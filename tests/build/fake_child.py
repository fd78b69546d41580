"""The one fake of the tests: a child that speaks the real protocol, without torch.

Used as ``[model] interpreter = [python, fake_child.py]``. What it does is told by
``behaviour.json`` in the checkpoint's directory:

- ``probe``/``compile``/``prove``: a word of ``_ACTIONS`` (hang, hang_with_others, exit, kill,
  rubbish, stay, allocate, no_space, out_of_memory), done before the answer; ``{"mode": word}``
  for one mode alone.
- ``graph``: the graph's name. A proof from a bundle of another graph reports a miss.
- ``report``: counts that replace zeros in the proof's report; ``outputs``: the state of outputs.
- ``bulk_bytes``: bytes of an artifact that no packing makes smaller; ``twins``: how many more
  artifacts have the same content.
- ``small_files``: how many small artifacts are made beside it, the first ten with what torch
  leaves about: locks and temporary files.
- ``unmended``: what a proof without the shim says that it lacked.
- ``mends``, ``shim_report``: what the shim changes, and the counts of a proof with it.
- ``keeps_place``: the artifacts keep the path of the build, as torch's graph entries do: a start
  that does not find its tuned configurations there tunes again and leaves what it found.
- ``no_artifacts``: a timed start has no Mega-Cache; ``tell_found``: a file that gets a line for
  each such start with its cache and the files in it.
- ``order_report``: the same, for the runs that make another call first alone.
- ``failed``: shape sets that fail in the build.
- ``tell_places``: a file that gets the proof's HOME, TMPDIR and working directory.
- ``tell_environ``: a file to which each child adds its kind and variables.
- ``elsewhere``: a file outside the checkpoint that replaces what is told here, once it is there.
- ``clock``: a file for what ran when, by the monotonic clock: a build's ticks and the stretches
  that it times (``rounds`` of them), and the whole of each proof.
- ``marks``: a directory; ``NAME.reached`` is written at each point of the work, and the child waits
  there until ``NAME.go`` exists if ``hold`` names that point.
"""

import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

if len(sys.argv) > 1 and sys.argv[1].endswith("facts.py"):
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    raise SystemExit

ZEROS = dict.fromkeys(
    [
        "graphs_compiled",
        "graphs_bypassed",
        "fx_misses",
        "aot_misses",
        "aot_bypassed",
        "cpp_compiled",
        "benchmarked_autotuning",
        "recompiles",
        "limits_hit",
        "compilers_started",
        "files_changed",
    ],
    0,
)


def say(kind: str, value: dict) -> None:
    print(json.dumps({kind: value}), flush=True)


def act(word: str | None) -> None:
    """Do something that a child must not do."""
    if word == "hang":
        print("told by the fake: tracing", file=sys.stderr, flush=True)
        time.sleep(3600)
    elif word == "hang_with_others":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        act("stay")
        act("hang")
    elif word == "exit":
        os._exit(3)
    elif word == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif word == "rubbish":
        print("Hello from a model that prints", flush=True)
    elif word == "stay":
        for detach in (False, True):
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=detach
            )
    elif word == "allocate":
        held = []
        while True:
            held.append(bytearray(16 << 20))
    elif word in ("no_space", "out_of_memory"):
        say("failure", {"code": word, "message": f"{word} told by the fake", "kind": "Fake"})
        os._exit(1)


def mark(behaviour: dict, name: str) -> None:
    """Tell that a point was reached, and wait there if it is to be held."""
    if "marks" not in behaviour:
        return
    directory = Path(behaviour["marks"])
    (directory / f"{name}.reached").touch()
    while name in behaviour.get("hold", ()) and not (directory / f"{name}.go").exists():
        tick(behaviour)
        time.sleep(0.01)


def tell(behaviour: dict, **what: object) -> None:
    """Add a line to the clock."""
    if "clock" in behaviour:
        line = json.dumps({"pid": os.getpid(), **what}) + "\n"
        with open(behaviour["clock"], "a") as file:
            file.write(line)


def tick(behaviour: dict) -> None:
    """Tell that this process runs now."""
    tell(behaviour, tick=time.monotonic())


def take_times(behaviour: dict) -> None:
    """Time something in the turn of this device, and do something else in between."""
    from prewarm_torchside.turn import Alone

    for _ in range(behaviour.get("rounds", 0)):
        with Alone():
            began_s = time.monotonic()
            time.sleep(0.01)
            tell(behaviour, timed=[began_s, time.monotonic()])
        for _ in range(10):
            tick(behaviour)
            time.sleep(0.001)


def calls_of(request: dict) -> list[tuple[str, dict]]:
    return [
        (shape_set["name"], sizes)
        for shape_set in request["declaration"]["shapes"]
        for sizes in shape_set.get("sizes") or [{}]
    ]


def compile_run(request: dict, behaviour: dict, cache: Path) -> dict:
    began_s = time.monotonic()
    mark(behaviour, "compile-begun")
    take_times(behaviour)
    for number, part in enumerate(("fxgraph", "aotautograd", "kernel")):
        file = cache / part / f"{behaviour.get('graph', 'g')}-{part}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(f"{part} of {behaviour.get('graph', 'g')}\n".encode() * 2000)
        mark(behaviour, f"compile-{number}")
    if behaviour.get("keeps_place"):
        (cache / "place").write_text(str(cache))
        (cache / "best_config").touch()
    bulk = random.Random(0).randbytes(behaviour.get("bulk_bytes", 1))
    for twin in ("bulk", *(f"bulk-{n}" for n in range(behaviour.get("twins", 0)))):
        (cache / twin).write_bytes(bulk)
    for number in range(behaviour.get("small_files", 0)):
        folder = cache / "many" / f"{number:03}"
        folder.mkdir(parents=True)
        (folder / "kernel.so").write_bytes(f"kernel {number}".encode() * 20)
        if number < 10:
            (folder / "locks").mkdir()
            for left in ("locks/kernel", "kernel.lock", "kernel.so.tmp", "tmp.pid_1_a"):
                (folder / left).touch()
    failed = dict.fromkeys(behaviour.get("failed", ()), "ValueError: told by the fake")
    clocked = {"cold_between": [began_s, time.monotonic()]} if "clock" in behaviour else {}
    return {
        "mode": request["mode"],
        "load_s": 0.1,
        "failed": failed,
        "peak_memory_bytes": {"resident": 1 << 20, "device": None},
        "report": ZEROS,
        "calls": [
            {"shape_set": name, "sizes": sizes, "cold_s": 10.0, "compiled_frames": 1, "graphs": 1,
             "graph_breaks": [], "compiled_ms": 1.0, "eager_ms": 2.0, **clocked}
            for name, sizes in calls_of(request)
        ],
    }  # fmt: skip


def prove(request: dict, behaviour: dict, cache: Path) -> dict:
    began_s = time.monotonic()
    mark(behaviour, "prove-full" if request["full"] else "prove-order")
    if "tell_places" in behaviour:
        told = {name: os.environ.get(name) for name in ("HOME", "TMPDIR", "PWD")}
        Path(behaviour["tell_places"]).write_text(json.dumps({**told, "cwd": os.getcwd()}))
    there = (cache / "fxgraph" / f"{behaviour.get('graph', 'g')}-fxgraph").is_file()
    missed = {} if there else {"graphs_compiled": 1, "fx_misses": 1, "aot_misses": 1}
    if "clock" in behaviour:
        time.sleep(0.1)
    tell(behaviour, timed=[began_s, time.monotonic()])
    calls = calls_of(request)
    shim = "PREWARM_DIR" in os.environ
    tuned = {"benchmarked_coordinate_descent": 3} if tunes_again(cache) else {}
    return {
        "calls": [
            {"shape_set": calls[n][0], "sizes": calls[n][1], "warm_s": 1.0, "compiled_frames": 1}
            for n in request["order"]
        ],
        "again_failed": behaviour.get("again_failed"),
        "outputs": {"state": behaviour.get("outputs", "agree"), "worst": 0.0, "tolerance": 1e-4}
        if request["full"]
        else None,
        "load_s": 0.1,
        "peak_memory_bytes": {"resident": 1 << 20, "device": None},
        "python": "3.11.0",
        "uid": os.getuid(),
        "mends": behaviour.get("mends", []) if shim else [],
        "unmended": [] if shim else behaviour.get("unmended", []),
        "report": {**ZEROS, "triton_compiled": "n/a", "benchmarked_coordinate_descent": "n/a",
                   "bypass_reasons": ["told by the fake"], "not_watched": [],
                   **missed, **tuned, **behaviour.get("shim_report" if shim else "report", {}),
                   **({} if request["full"] else behaviour.get("order_report", {}))},
    }  # fmt: skip


def start(request: dict, behaviour: dict, cache: Path) -> dict:
    """Answer as a start that is timed; the seconds say which arm it was."""
    there = (cache / "fxgraph").is_dir()
    if "tell_found" in behaviour:
        found = len([path for path in cache.rglob("*") if path.is_file()])
        with Path(behaviour["tell_found"]).open("a") as file:
            file.write(json.dumps({"cache": str(cache), "files": found}) + "\n")
    if not there and not request.get("eager"):
        (cache / "fxgraph").mkdir(parents=True)
        (cache / "fxgraph" / "graph").write_bytes(b"graph" * 100)
    elif there and "PREWARM_DIR" not in os.environ:
        (cache / "fxgraph" / "tuned").touch()
    saved = request.get("save_artifacts")
    if saved and not behaviour.get("no_artifacts"):
        Path(saved).write_bytes(b"artifacts")
    first_s = 0.1 if request.get("eager") else 2.0 if there else 20.0
    if "load_artifacts" in request:
        first_s = 8.0
    if "PREWARM_DIR" in os.environ:
        first_s = 1.0
    counts = dict.fromkeys(ZEROS, 0 if there else 1)
    return {
        "import_s": 1.0, "build_s": 0.5, "artifacts_s": 0.0, "first_s": first_s,
        "whole_s": 1.5 + first_s, "second_s": 0.01, "steady_ms": 1.0,
        "others_s": [0.1] * (len(calls_of(request)) - 1),
        "artifacts_bytes": None,
        "report": {**counts, "triton_compiled": "n/a", "benchmarked_coordinate_descent": "n/a"},
    }  # fmt: skip


def tunes_again(cache: Path) -> bool:
    if not (cache / "place").is_file():
        return False
    tuned = Path((cache / "place").read_text()) / "best_config"
    if tuned.is_file():
        return False
    tuned.parent.mkdir(parents=True)
    tuned.touch()
    return True


def main() -> None:
    request = json.loads(sys.stdin.read())
    told = Path(request["checkpoint"]) / "behaviour.json"
    behaviour = json.loads(told.read_text()) if told.is_file() else {}
    if Path(behaviour.get("elsewhere", "/nowhere")).is_file():
        behaviour |= json.loads(Path(behaviour["elsewhere"]).read_text())
    if request["kind"] == "probe":
        act(behaviour.get("probe"))
        say("answer", {"torch": "fake", "threads": 1, "device": "cpu"})
        return
    if "tell_environ" in behaviour:
        with open(behaviour["tell_environ"], "a") as file:
            file.write(json.dumps([request["kind"], dict(os.environ)]) + "\n")
    say("progress", {"step": "cold", "call": 1, "of": 1, "shape_set": "fake", "sizes": {}})
    word = behaviour.get(request["kind"])
    act(word.get(request["mode"]) if isinstance(word, dict) else word)
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    run = {"compile": compile_run, "prove": prove, "start": start}[request["kind"]]
    say("answer", run(request, behaviour, cache))
    mark(behaviour, f"{request['kind']}-answered")


main()

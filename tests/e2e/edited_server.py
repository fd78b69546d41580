"""A server in which one thing is edited. Knows nothing of prewarm.

Usage: ``edited_server.py EDIT``.
"""

import sys

import blocks
import torch

EDIT = sys.argv[1]


class Wrapped(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)


def main():
    model = blocks.build()
    x = torch.randn(8, 64)
    compiled = model
    mode = "default"
    around = torch.inference_mode()
    if EDIT == "wrapped":
        compiled = Wrapped(model)
    elif EDIT == "frozen":
        model.requires_grad_(False)
    elif EDIT == "function":

        def compiled(x):
            return model(x)

    elif EDIT == "precision":
        torch.set_float32_matmul_precision("high")
    elif EDIT == "grad":
        around = torch.enable_grad()
    elif EDIT == "strided":
        x = torch.randn(64, 8).t()
    elif EDIT == "mode":
        mode = "reduce-overhead"
    elif EDIT == "dtype":
        model, x = model.bfloat16(), x.bfloat16()
    elif EDIT == "size":
        x = torch.randn(3, 64)
    answer = torch.compile(compiled, mode=mode, dynamic=False)
    with around:
        answer(x)


main()

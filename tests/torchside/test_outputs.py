"""Outputs agree within the dtype's tolerance, differ, or are random; nothing else."""

from __future__ import annotations

import pytest
import torch

from prewarm.torchside.outputs import compare


def state(compiled: torch.Tensor, eager: torch.Tensor, again: torch.Tensor | None = None) -> str:
    return str(compare([compiled], [eager], [eager if again is None else again])["state"])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_rounding_agrees_and_an_error_does_not(dtype: torch.dtype) -> None:
    eager = torch.linspace(-3, 3, 100).to(dtype)
    assert state(eager * (1 + torch.finfo(dtype).eps), eager) == "agree"
    wrong = eager.clone()
    wrong[7] += 1
    assert state(wrong, eager) == "differ"


def test_whole_numbers_must_be_equal() -> None:
    assert state(torch.tensor([1, 2]), torch.tensor([1, 2])) == "agree"
    assert state(torch.tensor([1, 3]), torch.tensor([1, 2])) == "differ"


def test_nan_and_infinity_must_stand_in_the_same_places() -> None:
    odd = torch.tensor([1.0, float("nan"), float("inf"), -float("inf")])
    assert state(odd.clone(), odd) == "agree"
    assert state(torch.tensor([1.0, 2.0, float("inf"), -float("inf")]), odd) == "differ"
    assert state(torch.tensor([1.0, float("nan"), 5.0, -float("inf")]), odd) == "differ"


def test_another_shape_dtype_or_number_of_tensors_differs() -> None:
    assert state(torch.ones(2), torch.ones(3)) == "differ"
    assert state(torch.ones(2).double(), torch.ones(2)) == "differ"
    assert compare([], [torch.ones(1)], [torch.ones(1)])["state"] == "differ"


def test_random_outputs_are_told_apart() -> None:
    assert state(torch.rand(9), torch.rand(9), torch.rand(9)) == "random"


def test_empty_tensors_agree() -> None:
    assert state(torch.ones(0), torch.ones(0)) == "agree"


def test_an_output_is_as_coarse_as_what_it_was_computed_with() -> None:
    from prewarm.torchside.outputs import Precision

    x = torch.linspace(-3, 3, 100)
    with Precision() as precision:
        eager = (x.to(torch.bfloat16) * 3).float()
    assert eager.dtype is torch.float32
    rounded = eager * 1.001
    assert compare([rounded], [eager], [eager])["state"] == "differ"
    assert compare([rounded], [eager], [eager], coarsest=precision.tolerance)["state"] == "agree"
    whole = torch.tensor([1, 2])
    wrong = compare([whole + 1], [whole], [whole], coarsest=precision.tolerance)
    assert wrong["state"] == "differ"


def test_what_refuses_a_mode_is_told_by_its_parameters_and_still_runs() -> None:
    from prewarm.torchside.outputs import TOLERANCE, coarsest_tolerance

    module = torch.nn.Linear(2, 2, dtype=torch.float16)

    def branches() -> torch.Tensor:
        x = torch.ones(2)
        return torch.cond(x.sum() > 0, lambda z: z + 1, lambda z: z - 1, (x,))

    with torch.inference_mode():
        assert coarsest_tolerance(branches, module) >= TOLERANCE[torch.float32]

    def refuses() -> None:
        raise RuntimeError("no rule for this mode")

    assert coarsest_tolerance(refuses, module) == TOLERANCE[torch.float16]

"""Accuracy in half precision: results about as close to float32 as eager torch's, and others."""

import pytest
import torch

from torchport.verification import coarsest_step, half_difference

INF, NAN = float("inf"), float("nan")
STEP = 2**-7


def off(actual, eager, wide, ops=1, dtype=torch.bfloat16):
    tensors = torch.tensor(actual, dtype=dtype), torch.tensor(eager, dtype=dtype), torch.tensor(wide)
    return half_difference(*tensors, step=STEP, ops=ops)


@pytest.mark.parametrize(
    ("actual", "eager", "wide"),
    [
        ([1.0, 2.0], [1.0, 2.0], [1.0, 2.0]),
        ([1.0, 2.015], [1.0, 2.0], [1.0, 2.0]),  # one rounding step
        ([1.0, 3.0], [1.0, 1.5], [1.0, 2.0]),  # twice eager torch's error
        ([1.0, INF], [1.0, INF], [1.0, 3e5]),
        ([1.0, 3e5], [1.0, INF], [1.0, 3e5]),  # eager torch overflows, float32 does not
        ([NAN, 1.0], [NAN, 1.0], [NAN, 1.0]),
        ([], [], []),
    ],
)
def test_results_that_are_close_enough(actual, eager, wide):
    assert off(actual, eager, wide) == ""


@pytest.mark.parametrize(
    ("actual", "eager", "wide", "problem"),
    [
        ([1.0, 3.0], [1.0, 2.0], [1.0, 2.0], "off by 1, eager torch in that dtype by 0"),
        ([1.0, 3.5], [1.0, 1.5], [1.0, 2.0], "off by 1.5"),
        ([1.0, INF], [1.0, 2.0], [1.0, 2.0], "not finite where eager torch is"),
        ([NAN, 1.0], [INF, 1.0], [INF, 1.0], "not finite where eager torch is"),
        ([0.0, 1.0], [NAN, 1.0], [NAN, 1.0], "finite where eager torch is not"),
    ],
)
def test_results_that_are_not_close_enough(actual, eager, wide, problem):
    assert problem in off(actual, eager, wide)


def test_rounding_grows_with_the_square_root_of_the_number_of_ops():
    assert off([1.05], [1.0], [1.0]) != ""
    assert off([1.05], [1.0], [1.0], ops=400) == ""
    assert off([1.2], [1.0], [1.0], ops=400) != ""


def test_integers_are_those_of_either_dtype():
    one, two, three = torch.tensor([1]), torch.tensor([2]), torch.tensor([3])
    assert half_difference(one, one, two, step=STEP) == half_difference(two, one, two, step=STEP) == ""
    assert "differs" in half_difference(three, one, two, step=STEP)


def test_the_coarsest_dtype_counts():
    assert coarsest_step([torch.float32, torch.int64]) == 0.0
    assert coarsest_step([torch.float16, torch.bfloat16, torch.float32]) == 2**-7
    assert coarsest_step([torch.float16]) == 2**-10

"""How far an island may be off."""

import math

import pytest
import torch

from torchport.compiler.island_trial import correlates, difference, reference_values
from torchport.targets import find

NAN, INF = math.nan, math.inf


def off(actual, expected, loose=False, dtype=torch.float32):
    return difference([torch.tensor(actual, dtype=dtype)], [torch.tensor(expected, dtype=dtype)], loose)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0]),
        ([1.0005, 2.0], [1.0, 2.0]),
        ([0.005, 100.0], [0.0, 100.0]),  # a long sum's error scales with what was summed
        ([NAN, INF, -INF, 1.0], [NAN, INF, -INF, 1.0]),
        ([NAN], [NAN]),
        ([], []),
    ],
)
def test_what_is_close_enough(actual, expected):
    assert off(actual, expected) == ""


@pytest.mark.parametrize(
    ("actual", "expected", "problem"),
    [
        ([1.1, 2.0], [1.0, 2.0], "off by 0.1"),
        ([0.0, 2.0], [NAN, 2.0], "where it is not finite"),
        ([NAN, 2.0], [1.0, 2.0], "where it is not finite"),
        ([INF, 2.0], [-INF, 2.0], "where it is not finite"),
        ([1e30, 2.0], [INF, 2.0], "where it is not finite"),
        ([INF, 2.0], [1.0, 2.0], "off by inf"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "float32[3] instead of float32[2]"),
    ],
)
def test_what_is_not(actual, expected, problem):
    assert problem in off(actual, expected)


def test_integers_have_no_tolerance():
    assert off([1, 2], [1, 2], dtype=torch.int64) == ""
    assert "integers, differs" in off([1, 3], [1, 2], dtype=torch.int64)
    assert "instead of" in difference([torch.tensor([1])], [torch.tensor([1.0])], False)


def test_a_device_that_was_asked_for_less_precision_may_be_further_off():
    assert off([1.03, 2.0], [1.0, 2.0]) != ""
    assert off([1.03, 2.0], [1.0, 2.0], loose=True) == ""
    assert off([1.5, 2.0], [1.0, 2.0], loose=True) != ""


@pytest.mark.parametrize(
    ("target", "options", "rough"),
    [
        ("openvino", {}, False),
        ("openvino", {"precision": "bfloat16"}, True),
        ("host", {}, False),
        ("ttnn", {}, True),
        ("ttnn", {"dtype": "float32"}, False),
    ],
)
def test_a_target_says_whether_it_was_asked_for_less_precision(target, options, rough):
    found = find(target)
    assert found.is_low_precision(found.make_options(options)) == rough


def test_rounding_that_adds_up_is_told_from_another_result():
    torch.manual_seed(0)
    right = torch.randn(1000)
    assert correlates([right + 0.05 * torch.randn(1000)], [right])
    assert not correlates([right.roll(1)], [right])
    assert not correlates([torch.tensor([1, 2])], [torch.tensor([1, 2])])  # integers are exact or wrong
    assert not correlates([torch.full((3,), torch.inf)], [torch.ones(3)])


def test_complex_numbers_are_compared_by_distance():
    assert off([1 + 1j], [1 + 1j], dtype=torch.complex64) == ""
    assert "off by 1" in off([1 + 1j], [1 + 2j], dtype=torch.complex64)


def test_the_reference_is_eager_torch_and_draws_nothing():
    module = torch.fx.symbolic_trace(lambda x: torch.bernoulli(torch.relu(x) * 0.5))
    nodes = {node.name: node for node in module.graph.nodes}
    state = torch.get_rng_state()
    values = reference_values(module, [torch.tensor([-1.0, 2.0])], {nodes["relu"]})
    assert values[nodes["relu"]].tolist() == [0.0, 2.0]
    assert torch.equal(torch.get_rng_state(), state)

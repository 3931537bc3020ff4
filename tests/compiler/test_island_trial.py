"""How far an island's results may differ."""

import math
import re

import pytest
import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

import torchport
from targets.graphs import island_of
from torchport.compiler.island_trial import difference, island_difference, reference_values
from torchport.errors import CompileError
from torchport.targets import find

NAN, INF = math.nan, math.inf


class Asked(TorchDispatchMode):
    """Records the dtypes that products are computed in."""

    def __init__(self):
        super().__init__()
        self.dtypes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "mm" in str(func):
            self.dtypes += [value.dtype for value in args if isinstance(value, torch.Tensor)]
        return func(*args, **(kwargs or {}))


def test_a_product_in_bfloat16_is_computed_in_float32_and_rounded():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    product = graph.call_function(torch.ops.aten.mm.default, (x, y))
    graph.output(product)
    left, right = torch.randn(3, 64).bfloat16(), torch.randn(64, 5).bfloat16()
    with Asked() as asked:
        values = reference_values(fx.GraphModule({}, graph), (left, right), {product})
    assert set(asked.dtypes) == {torch.float32}
    assert torch.equal(values[product], (left.float() @ right.float()).bfloat16())


def off(actual, expected, low_precision=False, dtype=torch.float32):
    ours, theirs = torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=dtype)
    return difference([ours], [theirs], low_precision=low_precision)


def off_as_a_whole(actual, expected):
    return difference([actual], [expected], low_precision=True, whole=True)


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
        ([1.1, 2.0], [1.0, 2.0], "1 of 2 elements differ"),
        ([0.0, 2.0], [NAN, 2.0], "elements differ"),
        ([NAN, 2.0], [1.0, 2.0], "elements differ"),
        ([INF, 2.0], [-INF, 2.0], "elements differ"),
        ([1e30, 2.0], [INF, 2.0], "elements differ"),
        ([INF, 2.0], [1.0, 2.0], "it is inf, expected 1"),
        ([1.0, 2.0, 3.0], [1.0, 2.0], "the shape is [3], expected [2]"),
    ],
)
def test_what_is_not(actual, expected, problem):
    assert problem in off(actual, expected)


def test_integers_have_no_tolerance():
    assert off([1, 2], [1, 2], dtype=torch.int64) == ""
    assert "it is 3, expected 2" in off([1, 3], [1, 2], dtype=torch.int64)
    assert "the dtype is" in difference([torch.tensor([1])], [torch.tensor([1.0])], low_precision=True)


def test_a_device_that_was_asked_for_less_precision_may_be_further_off():
    assert off([1.03, 2.0], [1.0, 2.0]) != ""
    assert off([1.03, 2.0], [1.0, 2.0], low_precision=True) == ""
    assert off([1.5, 2.0], [1.0, 2.0], low_precision=True) != ""


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
    assert off_as_a_whole(right + 0.1 * torch.randn(1000), right) == ""
    assert off_as_a_whole(right.roll(1), right) != ""
    assert off_as_a_whole(torch.tensor([1, 2]), torch.tensor([1, 3])) != ""  # integers are exact or wrong
    assert off_as_a_whole(torch.full((3,), torch.inf), torch.ones(3)) != ""


def test_one_op_on_its_own_is_not_excused_by_its_correlation():
    torch.manual_seed(0)
    right = torch.randn(1000)
    assert difference([right + 0.1 * torch.randn(1000)], [right], low_precision=True) != ""


def test_complex_numbers_are_compared_by_distance():
    assert off([1 + 1j], [1 + 1j], dtype=torch.complex64) == ""
    assert "it is 1+1j, expected 1+2j" in off([1 + 1j], [1 + 2j], dtype=torch.complex64)


def test_the_reference_is_eager_torch_and_draws_nothing():
    module = torch.fx.symbolic_trace(lambda x: torch.bernoulli(torch.relu(x) * 0.5))
    nodes = {node.name: node for node in module.graph.nodes}
    state = torch.get_rng_state()
    values = reference_values(module, [torch.tensor([-1.0, 2.0])], {nodes["relu"]})
    assert values[nodes["relu"]].tolist() == [0.0, 2.0]
    assert torch.equal(torch.get_rng_state(), state)


def test_booleans_of_rounded_numbers_are_judged_together():
    numbers = torch.linspace(-1, 1, 1000)
    expected, near, far = numbers > 0, numbers > 0.002, numbers > 0.2
    assert difference([near], [expected], low_precision=True, whole=True) == ""
    assert "differ" in difference([far], [expected], low_precision=True, whole=True)
    assert "differ" in difference([near], [expected], low_precision=False, whole=True)
    assert "differ" in difference([near], [expected], low_precision=True, whole=False)
    always = torch.ones(1000, dtype=torch.bool)
    assert "differ" in difference([numbers < 0.9], [always], low_precision=True, whole=True)


@pytest.mark.parametrize(
    ("share", "whole", "taken"), [(0.45, True, True), (0.7, True, False), (0.45, False, False)]
)
def test_kernels_of_eight_bits_may_differ_by_less_than_rounding_does(share, whole, taken):
    """With a coarse scale, the PCC of two results that round a few numbers differently is low."""
    x = torch.linspace(-1, 1, 1000).reshape(10, 100)

    def function(x):
        return torch.fake_quantize_per_tensor_affine(x, 1.5, 0, -128, 127) + 1

    island = island_of(function, x, target="openvino")
    expected = function(x)
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    noise *= share * (expected - (x + 1)).norm() / noise.norm()
    found = island_difference(island, [x], [expected + noise], [expected], low_precision=False, whole=whole)
    assert (found == "") is taken


@pytest.mark.parametrize(("off", "taken"), [(0.0, True), (0.6, True), (1.0, False), (1.5, False)])
def test_an_engine_may_leave_out_a_rounding(off, taken):
    """Such as between two fused ops: a result that differs, but is no further from the floats, is correct."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 100, generator=generator)

    def rounded(x):
        return torch.fake_quantize_per_tensor_affine(x, 1.5, 0, -128, 127)

    island = island_of(lambda x: rounded(rounded(x) * 0.7 + 0.3) + 1, x, target="openvino")
    expected = rounded(rounded(x) * 0.7 + 0.3) + 1
    error = torch.randn(100, 100, generator=generator)
    error *= off * (expected - (x * 0.7 + 1.3)).norm() / error.norm()
    merged = rounded(x * 0.7 + 0.3) + 1 + error
    assert (merged - expected).norm() > 0.5 * (expected - (x * 0.7 + 1.3)).norm()
    found = island_difference(island, [x], [merged], [expected], low_precision=False, whole=True)
    assert (found == "") is taken


def test_what_is_cut_off_is_no_rounding():
    """If clamping counted as rounding, a number far out of range would excuse any result."""
    x = torch.linspace(-1, 1, 1000).reshape(10, 100)
    x[0, 0] = 1e6

    def function(x):
        return torch.fake_quantize_per_tensor_affine(x, 0.01, 0, -128, 127) + 1

    island = island_of(function, x, target="openvino")
    expected = function(x)
    assert island_difference(island, [x], [-expected], [expected], low_precision=False, whole=True)


class Cancelled(torch.nn.Module):
    """A result that is 0 up to the rounding of sums in two orders, and another one that is not 0."""

    def forward(self, x):
        return x.sum() - x.flip(0).cumsum(0)[-1], x * 2


@pytest.mark.parametrize(("times", "taken"), [(-1.5, True), (0.0, True), (40.0, False)])
@pytest.mark.parametrize("whole", [False, True])
def test_what_is_zero_but_for_rounding_may_be_another_small_number(times, taken, whole):
    torch.manual_seed(0)
    x = torch.randn(100_000) * 1000
    island = island_of(Cancelled(), x)
    expected = Cancelled()(x)
    assert abs(expected[0]) > 1e-2  # eager's own rounding
    actual = [expected[0] * times, expected[1]]
    found = island_difference(island, [x], actual, expected, low_precision=False, whole=whole)
    assert (not found) == (taken and whole)
    # A result that is 0 does not excuse one that is not.
    actual[1] = expected[1] * 1.1
    assert island_difference(island, [x], actual, expected, low_precision=False, whole=whole)


def test_what_eager_torch_raises_on_the_example_inputs_is_said_with_its_line():
    embedding = torch.nn.Embedding(4, 8)

    def looks_up(ids):
        return embedding(ids) + 1

    with pytest.raises(CompileError) as caught:
        torchport.compile(looks_up, (torch.tensor([7]),))
    assert caught.value.what == "the model raises IndexError: index out of range in self"
    assert re.search(r"test_island_trial\.py:\d+ in looks_up$", caught.value.where)
    assert isinstance(caught.value.__cause__, IndexError)
    backend = torch.compile(looks_up, backend="torchport")
    with pytest.raises(IndexError, match="index out of range"):
        backend(torch.tensor([7]))

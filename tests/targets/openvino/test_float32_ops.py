"""Ops of half-precision models that are computed in float32: their kernels round more than their results."""

import pytest
import torch
import torch.nn.functional as F

import torchport
from targets.graphs import island_of
from torchport.targets import find
from torchport.targets.openvino.library import core, openvino
from torchport.targets.openvino.load import parts_of
from torchport.verification import HALVES, coarsest_step, half_difference

OPENVINO = find("openvino")
OPTIONS = {"cache": False, "speed_trial": False}
BOTH = pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
OPS = pytest.mark.parametrize(
    ("kind", "function"),
    [("CumSum", lambda x: x.cumsum(-1)), ("Power", lambda x: x**2.7), ("Power", lambda x: x**-1.1)],
    ids=["cumsum", "power", "negative power"],
)


@BOTH
@OPS
def test_the_result_is_rounded_once(kind, function, dtype):
    """In bfloat16, partial sums of ones stop at 256, and 2.7 becomes 2.703125."""
    x = torch.full((3, 2000), 1.0)
    x[1:] = torch.linspace(0.5, 20, 2000)
    example = torch.ones(3, 2000).to(dtype)
    compiled = torchport.compile(function, (example,), options=OPTIONS)
    assert compiled.coverage.complete
    x = x.to(dtype)
    actual, eager, exact = compiled(x), function(x), function(x.double())
    step = coarsest_step([dtype])
    for each in zip(actual, eager, exact, strict=True):
        assert half_difference(*each, step=step) == ""
    assert compiled.fallbacks.fallbacks == 0


@BOTH
@OPS
def test_its_kernel_is_that_of_float32(kind, function, dtype):
    """Whether or not this processor has a kernel in half precision."""
    xml, weights = parts_of(
        OPENVINO.build(island_of(function, torch.rand(3, 5).to(dtype)), OPENVINO.make_options({}))
    )
    model = core().read_model(xml, openvino().Tensor(weights, shared_memory=True))
    [found] = [node for node in model.get_ordered_ops() if node.get_type_name() == kind]
    assert found.get_output_element_type(0) == openvino().Type.f32


@BOTH
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x / 1e5,
        lambda x: x * 1e-8,
        lambda x: x * 3e-6,
        lambda x: torch.addmm(x[:, :3], x, x.t()[:, :3], beta=1e-7, alpha=1e-8),
        lambda x: F.conv1d(x[None], torch.ones(2, 3, 1, dtype=x.dtype)) * 1e-6,
    ],
    ids=["quotient", "tiny", "small", "product", "convolution"],
)
def test_numbers_beyond_the_dtypes_range(function, dtype):
    """In float16 they would become infinite, 0, or lose most of their digits."""
    torch.manual_seed(0)
    x = (torch.randn(3, 50) * 8000).to(dtype)
    compiled = torchport.compile(function, (x,), options={**OPTIONS, "check": False})
    assert compiled.coverage.complete
    actual, eager, exact = compiled(x), function(x), function(x.double())
    error, theirs = (float((each.double() - exact).abs().max()) for each in (actual, eager))
    assert error <= 2 * theirs + coarsest_step([dtype]) * float(exact.abs().max())

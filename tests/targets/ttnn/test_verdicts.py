"""ttnn refuses ops that it cannot compute as torch does, with the reason."""

import pytest
import torch
from torch.nn import functional

import torchport
from targets.graphs import planned, verdict_on
from targets.ttnn.programs import compiled_for, random
from torchport import targets

X = random(2, 3, 4, 5)
IMAGE = random(1, 4, 8, 8)

REFUSALS = [
    ("aten.sort.stable", lambda x: torch.sort(x, stable=True), (X,), "no_lowering", "no lowering to ttnn"),
    ("aten.relu.default", torch.relu, (X.double(),), "dtype", "not computed in float64"),
    ("aten.relu.default", torch.relu, (X.half(),), "dtype", "not computed in float16"),
    ("aten.bernoulli.default", torch.bernoulli, (X.sigmoid(),), "random", "draws random numbers"),
    ("aten.argmax.default", lambda x: x.argmax(-1), (X,), "dtype", "another element could be the largest"),
    ("aten.floor.default", torch.floor, (X,), "dtype", "could be rounded to another integer"),
    ("aten._to_copy.default", lambda x: x.long(), (X,), "integer_range", "could be larger"),
    ("aten.div.Tensor", lambda x: x / 0, (X,), "argument", "the divisor is 0"),
    ("aten.pow.Tensor_Scalar", lambda x: x ** float("inf"), (X,), "argument", "the exponent is inf"),
    ("aten.clamp.default", lambda x: x.clamp(2, 1), (X,), "argument", "the lower limit is above"),
    ("aten.masked_fill.Scalar", lambda x: x.masked_fill(x > 0, float("nan")), (X,), "argument", "NaN"),
    ("aten.convolution.default", lambda x, w: functional.conv2d(x, w), (IMAGE, random(2, 4, 3, 3)),
     "argument", "computed in the model"),
    ("aten.convolution.default", lambda x: functional.conv3d(x, torch.ones(2, 4, 1, 1, 1)),
     (random(1, 4, 2, 8, 8),), "shape", "over 3 dimensions"),
    ("aten.max_pool2d_with_indices.default", lambda x: functional.max_pool2d(x, 2, return_indices=True),
     (IMAGE,), "argument", "breaks ties differently"),
    ("aten.native_layer_norm.default",
     lambda x: torch.native_layer_norm(x, [5], None, None, 1e-5)[1], (X,), "argument", "mean and deviation"),
    ("aten.linalg_vector_norm.default", lambda x: torch.linalg.vector_norm(x, 3, -1), (X,), "argument",
     "the order of the norm is 3"),
    ("aten.index.Tensor", lambda x, i: x[:, i, :, i], (X, torch.tensor([1])), "argument", "not adjacent"),
    ("aten.mul.Tensor", lambda x: x * 2**40, (torch.tensor([1, 2]),), "integer_range", "up to 2**31"),
    ("aten.scaled_dot_product_attention.default",
     lambda q: functional.scaled_dot_product_attention(q, q, q, dropout_p=0.5), (random(1, 2, 8, 32),),
     "random", "dropout"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "function", "args", "reason", "text"), REFUSALS)
def test_what_cannot_be_honoured_is_refused(op, function, args, reason, text):
    verdict = verdict_on(op, function, *args, target="ttnn")
    assert not verdict.ok
    assert verdict.reason == reason
    assert text in verdict.detail


@pytest.mark.parametrize("op", ["argmax", "floor"])
def test_in_float32_what_depends_on_the_last_bits_is_taken(op):
    def function(x):
        return x.argmax(-1) if op == "argmax" else getattr(x, op)()

    compiled = compiled_for(function, 3 * X, dtype="float32")
    assert compiled.coverage.ops_remain == 0
    assert torch.equal(compiled(3 * X), function(3 * X))


def test_means_of_windows_are_taken_in_bfloat16_alone():
    target = targets.find("ttnn")
    graph = planned(lambda x: functional.avg_pool2d(x, 2), IMAGE, target="ttnn")
    [node] = [node for node in graph.nodes if "avg_pool2d" in str(node.target)]
    assert target.verdict(node, target.make_options({})).ok
    refused = target.verdict(node, target.make_options({"dtype": "float32"}))
    assert (refused.reason, refused.remedy) == ("dtype", "use dtype=bfloat16")


@pytest.mark.parametrize(
    ("size", "stride", "padding", "dilation", "ceil"),
    [
        (3, 2, 1, 1, False),
        (3, 2, 1, 1, True),
        ((3, 2), (1, 2), (1, 0), (2, 1), True),
        (2, 1, 0, 1, False),
        (3, 3, 1, 2, True),
        (1, 2, 0, 1, False),
    ],
)
def test_the_largest_of_windows_are_taken_in_float32(size, stride, padding, dilation, ceil):
    def function(x):
        return functional.max_pool2d(x, size, stride, padding, dilation, ceil)

    x = torch.randn(2, 5, 19, 14)
    compiled = compiled_for(function, x, dtype="float32")
    assert compiled.coverage.ops_remain == 0
    assert torch.equal(compiled(x), function(x))


def test_explain_needs_neither_the_library_nor_weights():
    with torch.device("meta"):
        model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU()).eval()
    coverage = torchport.explain(model, (torch.empty(1, 3, 16, 16, device="meta"),), target="ttnn")
    assert (coverage.ops_remain, coverage.transfers) == (0, 2)

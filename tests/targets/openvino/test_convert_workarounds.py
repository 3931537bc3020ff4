"""Floats converted to integers are truncated, whatever op reads them."""

import math

import numpy
import pytest
import torch
from torch import nn

import torchport
from torchport.targets.openvino.convert_workarounds import truncate_conversions
from torchport.targets.openvino.library import openvino

OPTIONS = {"cache": False, "check": False}  # without the check on the example inputs


class RelativeBias(nn.Module):
    """T5's relative position biases: distant positions share logarithmic buckets."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(32, 4)

    def forward(self, start):
        far = -torch.min(torch.arange(96) - start, torch.zeros(96, dtype=torch.int64))
        large = 16 + (torch.log(far.float() / 16) / math.log(8) * 16).to(torch.int64)
        return self.table(torch.where(far < 16, far, torch.min(large, torch.full_like(large, 31))))


def test_a_number_between_two_buckets_is_in_the_lower_one():
    model = RelativeBias().eval()
    compiled = torchport.compile(model, (torch.tensor(5),), target="openvino", options=OPTIONS)
    assert [row.op for row in compiled.coverage.stayed] == ["aten.log.default"]
    for start in range(90):
        assert torch.equal(compiled(torch.tensor(start)), model(torch.tensor(start))), start
    assert compiled.fallbacks.fallbacks == 0


@pytest.mark.parametrize(("dtype", "numpy_dtype"), [("i32", numpy.int32), ("i64", numpy.int64)])
def test_both_signs_are_cut_towards_zero(dtype, numpy_dtype):
    opset = openvino().opset13
    given = opset.parameter([64], numpy.float32)
    twice = opset.multiply(given, numpy.float32(2))
    read = opset.add(opset.convert(twice, dtype), numpy.array(1, dtype=numpy_dtype))
    model = openvino().Model([read], [given])
    truncate_conversions(model)
    x = numpy.linspace(-9, 9, 64, dtype=numpy.float32)
    made = openvino().compile_model(model, "CPU")(x)[0]
    assert made.tolist() == (numpy.trunc(x * 2) + 1).tolist()

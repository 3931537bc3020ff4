"""Quantization, simulated in floats: OpenVINO's FakeQuantize, which its kernels compute in eight bits."""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import Range, rounded
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.rules import argument, checked, value_of


def _quantized_range(node: fx.Node, values: Values) -> Range:
    """The least and the greatest number on the grid, whatever comes in."""
    scale, zero, low, high = node.args[1:5]
    assert isinstance(scale, (int, float))
    assert isinstance(zero, int)
    assert isinstance(low, int)
    assert isinstance(high, int)
    return rounded((low - zero) * scale, (high - zero) * scale)


@checked("fake_quantize_per_tensor_affine_cachemask.default", "fb", _quantized_range)
def _fake_quantize(node: fx.Node) -> Verdict | None:
    if any(user.args[1] != 0 for user in node.users):
        return argument("the mask of what was clipped is read")
    if value_of(node).dtype is not torch.float32:
        return Verdict(False, "dtype", "half precision is not quantized as torch does")
    if not all(isinstance(argument, (int, float)) for argument in node.args[1:5]):
        return argument("the scale or the zero point is known only at run time")
    return None

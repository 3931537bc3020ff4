"""Rules for fake quantization: OpenVINO's FakeQuantize, which its kernels compute in 8 bits."""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.float_ranges import Range, rounded
from torchport.targets.openvino.float_values import Values
from torchport.targets.openvino.open_size_checks import any_size
from torchport.targets.openvino.rules import argument, checked, value_of


def _quantized_range(node: fx.Node, values: Values) -> Range:
    """Return the range of the quantization grid, whatever the input."""
    scale, zero, low, high = node.args[1:5]
    assert isinstance(scale, (int, float))
    assert isinstance(zero, int)
    assert isinstance(low, int)
    assert isinstance(high, int)
    return rounded((low - zero) * scale, (high - zero) * scale)


@checked("fake_quantize_per_tensor_affine_cachemask.default", "fb", _quantized_range, open=any_size)
def _fake_quantize(node: fx.Node) -> Verdict | None:
    if any(user.args[1] != 0 for user in node.users):
        return argument("the mask of clipped elements is used")
    if value_of(node).dtype is not torch.float32:
        return Verdict(False, "dtype", "the device does not quantize half precision as torch does")
    if not all(isinstance(argument, (int, float)) for argument in node.args[1:5]):
        return argument("the scale or the zero point is only known at run time")
    return None

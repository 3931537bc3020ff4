"""Convolutions, plain and transposed."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import checked, shape, value_of


@checked("convolution.default", "f")
def _convolution(node: fx.Node) -> Verdict | None:
    transposed, weight = node.args[6], value_of(node, 1)
    if transposed and weight.dim() == 3:
        return shape("a transposed convolution in one dimension is not computed as torch does")
    if value_of(node).dim() != weight.dim():
        return shape("the input has no batch dimension")
    return None

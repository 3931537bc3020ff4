"""Adds the ops around a product whose input is rounded by its range in each call."""

from __future__ import annotations

import torch
from torch import fx

from torchport.quantization.decisions import DynamicRange

aten = torch.ops.aten


def divide_by_largest(graph: fx.Graph, value: fx.Node, quantizer: DynamicRange) -> list[fx.Node]:
    """Divide a tensor by its largest magnitude; the last two nodes returned are magnitude and quotient."""
    made: list[fx.Node] = [value]

    def add(op: object, *args: object) -> None:
        with graph.inserting_after(made[-1]):
            made.append(graph.call_function(op, args))  # type: ignore[arg-type]  # an op

    if not quantizer.is_unsigned:
        add(aten.abs.default, value)
    add(aten.amax.default, made[-1], list(quantizer.dims), True)
    add(aten.clamp_min.default, made[-1], DynamicRange.SMALLEST)
    add(aten.div.Tensor, value, made[-1])
    return made[1:]


def scale_back(graph: fx.Graph, node: fx.Node, largest: fx.Node) -> None:
    """Multiply a product by its input's largest magnitude, and add the bias after that.

    The node itself becomes the final op, so that its users and its name stay; the product is a new node.
    """
    args, target = list(node.args), node.target
    bias: object = None
    if str(target) == "aten.addmm.default":
        bias, target, args = args[0], aten.mm.default, args[1:]
    elif len(args) > 2:
        bias, args[2] = args[2], None
    with graph.inserting_before(node):
        product = graph.call_function(target, tuple(args))  # type: ignore[arg-type]  # an op
        product.meta = dict(node.meta)
        if isinstance(bias, fx.Node) and "conv" in str(target):
            ones = [1] * (node.meta["val"].dim() - 1 - has_samples(node))
            bias = graph.call_function(aten.view.default, (bias, [-1, *ones]))
        if bias is None:
            node.target, node.args = aten.mul.Tensor, (product, largest)
            return
        scaled = graph.call_function(aten.mul.Tensor, (product, largest))
    scaled.meta = dict(node.meta)
    assert isinstance(bias, fx.Node)
    node.target, node.args = aten.add.Tensor, (scaled, bias)


def has_samples(node: fx.Node) -> bool:
    """Whether a convolution's result has a dimension for the samples of a batch."""
    dims = next(int(digit) for digit in str(node.target) if digit.isdigit())
    return bool(node.meta["val"].dim() == dims + 2)

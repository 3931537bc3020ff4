"""Lowers matrix products, and linear layers with their bias and activation."""

from __future__ import annotations

import math

import torch
from torch import fx

from torchport.targets.ttnn.block_floats import narrowest
from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, Transform, torch_value
from torchport.targets.ttnn.ops.arithmetic import fused_activation
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype


def is_weight(node: object) -> bool:
    """Whether a node is a weight, so that it can be changed at compile time."""
    return isinstance(node, fx.Node) and node.op == "get_attr"


@lowers("linear.default", "f", fuses=True)
def _linear(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    weight, shape = given["weight"], tuple(torch_value(node).shape)
    if torch_value(weight).dim() != 2:
        refuse("shape", "the weight of a linear layer is not a matrix")
    dtype = lowering.device_dtype(node)
    value = lowering.get(given["input"], dtype)
    if len(value.shape) == 1 or value.shape[-2] == 1:  # each single row would be padded to 32 rows
        value = lowering.reshaped(value, (math.prod(value.shape[:-1]), value.shape[-1]))
    if is_weight(weight):
        stored = _weight_dtype(lowering, node, weight, _transposed)
        matrix = lowering.weight(weight, _transposed, "transposed", dtype=stored)
    else:
        matrix = lowering.get(weight, dtype)
    result = lowering.precise(
        "linear", value, matrix, bias=_bias(lowering, given["bias"], node),
        transpose_b=None if is_weight(weight) else True, activation=lowering.fused.get(node),
    )  # fmt: skip
    return lowering.reshaped(result, shape)


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.t()


def _weight_dtype(
    lowering: Lowering, node: fx.Node, weight: fx.Node, transform: Transform | None = None
) -> Dtype:
    """Return the dtype of a weight: a block float if it holds the weight exactly."""
    if torch_value(node).dtype is not torch.float32:
        return "bfloat16"
    tensor = lowering.tensor_of(weight)
    if tensor is None or lowering.weight_dtype == "float32":
        return lowering.weight_dtype
    tensor = tensor.detach()
    return narrowest(tensor if transform is None else transform(tensor)) or lowering.weight_dtype


def _bias(lowering: Lowering, bias: object, node: fx.Node) -> Value | None:
    if bias is None:
        return None
    assert isinstance(bias, fx.Node)
    if is_weight(bias):
        return lowering.weight(
            bias, lambda tensor: tensor.reshape(1, -1), "a row", dtype=lowering.device_dtype(node)
        )
    value = lowering.get(bias, lowering.device_dtype(node))
    return lowering.reshaped(value, (1, torch_value(bias).numel()))


@lowers("addmm.default", "f", fuses=True)
def _addmm(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    if given["alpha"] != 1 or given["beta"] != 1:
        refuse("argument", "the product or the bias is scaled")
    bias = given["self"]
    columns = torch_value(node).shape[1]
    left, right = (
        _operand(lowering, given["mat1"], node),
        _operand(lowering, given["mat2"], node, matrix=True),
    )
    if torch_value(bias).numel() == columns and torch_value(bias).shape[-1:] == (columns,):
        row = _bias(lowering, bias, node)
        return lowering.precise("linear", left, right, bias=row, activation=lowering.fused.get(node))
    product = lowering.precise("matmul", left, right)
    added = lowering.get(bias, lowering.device_dtype(node))
    return lowering.call("add", product, added, activations=fused_activation(lowering, node))


@lowers("mm.default bmm.default", "f")
def _product(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    left, right = node.args[0], node.args[1]
    return lowering.precise(
        "matmul", _operand(lowering, left, node), _operand(lowering, right, node, matrix=True)
    )


def _operand(lowering: Lowering, operand: object, node: fx.Node, matrix: bool = False) -> Value:
    assert isinstance(operand, fx.Node)
    if matrix and is_weight(operand):
        return lowering.weight(operand, dtype=_weight_dtype(lowering, node, operand))
    return lowering.get(operand, lowering.device_dtype(node))

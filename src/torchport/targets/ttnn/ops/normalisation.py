"""Lowers normalisation layers; ttnn does not return the statistics, torch's second and third results."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Lowering, Result, Results, torch_value
from torchport.targets.ttnn.operand_forms import elementwise
from torchport.targets.ttnn.ops.matrix import is_weight
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.ttnn_program import Dtype


def _only_first(node: fx.Node) -> None:
    if any(user.args[1] != 0 for user in node.users):
        refuse("argument", "the mean and deviation are used, which ttnn does not return")


def _first_value(node: fx.Node) -> torch.Tensor:
    value = node.meta["val"][0]
    assert isinstance(value, torch.Tensor)
    return value


def _row(lowering: Lowering, node: object, dtype: Dtype) -> Value | None:
    """Return a scale or shift as a row; None if there is none."""
    if node is None:
        return None
    assert isinstance(node, fx.Node)
    if is_weight(node):
        return lowering.weight(node, lambda tensor: tensor.reshape(1, -1), "a row", dtype=dtype)
    return lowering.reshaped(lowering.get(node, dtype), (1, torch_value(node).numel()))


@lowers("native_layer_norm.default", "f")
def _layer_norm(lowering: Lowering, node: fx.Node, given: Given) -> Results:
    _only_first(node)
    value = _rows_of(lowering, given["input"], given["normalized_shape"])
    dtype = value.dtype
    result = lowering.precise(
        "layer_norm", value, epsilon=float(given["eps"]), weight=_row(lowering, given["weight"], dtype),
        bias=_row(lowering, given["bias"], dtype),
    )  # fmt: skip
    return [lowering.reshaped(result, tuple(_first_value(node).shape)), None, None]


def _rows_of(lowering: Lowering, source: object, normalised: list[int]) -> Value:
    """Return a value with the normalised dimensions flattened into one."""
    shape = tuple(torch_value(source).shape)
    kept = shape[: len(shape) - len(normalised)]
    return lowering.reshaped(lowering.get(source), (*(kept or (1,)), math.prod(normalised)))


@lowers("rms_norm.default", "f")
def _rms_norm(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    value = _rows_of(lowering, given["input"], given["normalized_shape"])
    epsilon = given["eps"]
    if epsilon is None:
        # At least float32's epsilon: torch computes half precision in float32.
        epsilon = torch.finfo(torch.promote_types(torch_value(node).dtype, torch.float32)).eps
    weight = _row(lowering, given["weight"], value.dtype)
    result = lowering.precise("rms_norm", value, epsilon=float(epsilon), weight=weight)
    return lowering.reshaped(result, tuple(torch_value(node).shape))


@lowers("native_group_norm.default", "f")
def _group_norm(lowering: Lowering, node: fx.Node, given: Given) -> Results:
    """Normalise each group as a row, then scale and shift the channels."""
    _only_first(node)
    shape = tuple(torch_value(given["input"]).shape)
    value = lowering.get(given["input"])
    dtype = value.dtype
    rows = (shape[0], given["group"], math.prod(shape) // (shape[0] * given["group"]))
    value = lowering.precise("layer_norm", lowering.reshaped(value, rows), epsilon=float(given["eps"]))
    value = lowering.reshaped(value, shape)
    for name, function in (("weight", "mul"), ("bias", "add")):
        row = _row(lowering, given[name], dtype)
        if row is not None:
            column = lowering.reshaped(row, (1, shape[1], *[1] * (len(shape) - 2)))
            value = lowering.call(function, value, column)
    return [value, None, None]


@lowers("_native_batch_norm_legit_no_training.default", "f")
def _batch_norm(lowering: Lowering, node: fx.Node, given: Given) -> Results:
    """Lower to a scale and a shift for each channel, both computed at compile time."""
    _only_first(node)
    source = given["input"]
    dtype = lowering.device_dtype(source)
    scale, shift = folded_statistics(lowering, given, dtype, torch_value(source).dim())
    inner = _like(source, scale.shape)
    lowering.put(inner, scale)
    outer = _like(source, shift.shape)
    lowering.put(outer, shift)
    look = _like(source, tuple(torch_value(source).shape))
    result = elementwise(
        lowering, look, (source, inner, outer), (dtype,) * 3,
        lambda a, b, c: lowering.call("add", lowering.call("mul", a, b), c),
    )  # fmt: skip
    return [result, None, None]


def _like(source: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    """Return a node outside the graph that represents a tensor of a shape."""
    node = fx.Graph().placeholder("stands_for")
    node.meta["val"] = torch.empty(shape, dtype=torch_value(source).dtype, device="meta")
    return node


def folded_statistics(
    lowering: Lowering, given: dict[str, Any], dtype: Dtype, rank: int
) -> tuple[Value, Value]:
    """Return a batch norm's scale and shift, shaped to broadcast over channels."""
    nodes = statistics_nodes(given)
    eps = given["eps"]
    key = (statistics_names(given), eps, rank)
    shape = (1, -1, *[1] * (rank - 2))

    def scale(*tensors: torch.Tensor) -> torch.Tensor:
        return scale_and_shift(given, tensors, eps)[0].reshape(shape)

    def shift(*tensors: torch.Tensor) -> torch.Tensor:
        return scale_and_shift(given, tensors, eps)[1].reshape(shape)

    return (
        lowering.computed(nodes, scale, ("scale", *key), dtype=dtype),
        lowering.computed(nodes, shift, ("shift", *key), dtype=dtype),
    )


def statistics_names(given: dict[str, Any]) -> tuple[str, ...]:
    """Return which statistics and weights a batch norm has."""
    names = ("running_mean", "running_var", "weight", "bias")
    return tuple(name for name in names if given[name] is not None)


def statistics_nodes(given: dict[str, Any]) -> list[fx.Node]:
    """Return the nodes of a batch norm's statistics and weights; refuse those computed in the model."""
    nodes = [given[name] for name in statistics_names(given)]
    if not all(is_weight(item) for item in nodes):
        refuse("argument", "the statistics of a batch norm are computed in the model")
    return nodes


def scale_and_shift(
    given: dict[str, Any], tensors: tuple[torch.Tensor, ...], eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the per-channel scale and shift that a batch norm applies."""
    found = {name: tensor.double() for name, tensor in zip(statistics_names(given), tensors, strict=True)}
    scale = torch.rsqrt(found["running_var"] + eps)
    if "weight" in found:
        scale = scale * found["weight"]
    shift = -found["running_mean"] * scale
    if "bias" in found:
        shift = shift + found["bias"]
    return scale.float(), shift.float()

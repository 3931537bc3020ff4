"""Lowers convolutions, with a following batch norm folded in and a following activation fused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from torchport.targets.ttnn.builder import Value
from torchport.targets.ttnn.lowering import Formed, Lowering, Result, arguments, torch_value
from torchport.targets.ttnn.ops.arithmetic import unary_with_param
from torchport.targets.ttnn.ops.matrix import is_weight
from torchport.targets.ttnn.ops.normalisation import scale_and_shift, statistics_names, statistics_nodes
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.rules import Given, lowers
from torchport.targets.ttnn.simulator.images import takes_block_floats
from torchport.targets.ttnn.ttnn_program import COMPUTE, DEVICE, Dtype, Make, Name

_DRAM = Name("DRAM_MEMORY_CONFIG")


@dataclass(frozen=True, slots=True, eq=False)
class Followers:
    """The ops fused into a convolution.

    Args:
        batch_norm: the batch norm folded into its weights, if any.
        activation: ttnn's name of the activation applied to its result, if any.
    """

    batch_norm: fx.Node | None
    activation: str | None


@lowers("convolution.default", "f", on_images=True, fuses=True)
def _convolution(lowering: Lowering, node: fx.Node, given: Given) -> Result:
    source, weight = torch_value(given["input"]), torch_value(given["weight"])
    rank = weight.dim() - 2
    if rank not in (1, 2) or source.dim() != weight.dim():
        refuse("shape", f"a convolution over {rank} dimensions, or without a batch dimension")
    if not is_weight(given["weight"]) or not (given["bias"] is None or is_weight(given["bias"])):
        refuse("argument", "the weights of a convolution are computed in the model")
    followers = lowering.fused.get(node) or Followers(None, None)
    dtype = lowering.device_dtype(node)
    value = lowering.get(given["input"], dtype, layout=_layout_of(lowering, given["input"]), form="last")
    geometry = _geometry(given, source, weight)
    config = _config(_weight_dtype(lowering, node, geometry), followers.activation)
    kind = "conv_transpose2d" if given["transposed"] else "conv2d"
    weights, biases = _weights(lowering, given, followers, dtype)
    has_bias = biases is not None
    prepared = lowering.call(
        "prepare_conv_weights" if kind == "conv2d" else "prepare_conv_transpose2d_weights",
        weight_tensor=weights, has_bias=has_bias, weights_format="OIHW" if kind == "conv2d" else "IOHW",
        load=True, wish=f"{weights.name}_prepared", **_preparation(value, config, geometry),
    )  # fmt: skip
    if biases is not None:
        without = {key: item for key, item in geometry.items() if key != "output_padding"}
        biases = lowering.call(
            "prepare_conv_bias" if kind == "conv2d" else "prepare_conv_transpose2d_bias",
            bias_tensor=biases, load=True, wish=f"{biases.name}_prepared",
            **_preparation(value, config, without),
        )  # fmt: skip
    result = lowering.call(
        kind, input_tensor=value, weight_tensor=prepared, bias_tensor=biases, device=DEVICE, **geometry,
        dtype=Name(dtype), conv_config=config, compute_config=COMPUTE, memory_config=_DRAM, wish=node.name,
    )  # fmt: skip
    return Formed(result, "last")


def _layout_of(lowering: Lowering, node: fx.Node) -> Any:
    """Keep the layout that the images have: a convolution accepts both."""
    if node.op == "get_attr":
        return "row_major"
    return lowering.held_layout(node, "last")


def _weight_dtype(lowering: Lowering, node: fx.Node, geometry: dict[str, Any]) -> Dtype:
    """Return the dtype of the weights; bfloat16 if the library cannot prepare them in bfloat8_b."""
    if torch_value(node).dtype is not torch.float32:
        return "bfloat16"
    if lowering.weight_dtype != "bfloat8_b" or takes_block_floats(**geometry):
        return lowering.weight_dtype
    return "bfloat16"


def _config(weight_dtype: Dtype, activation: str | None) -> Make:
    entries: list[tuple[str, Any]] = [("weights_dtype", Name(weight_dtype))]
    if activation:
        entries.append(("activation", unary_with_param(activation)))
    return Make("Conv2dConfig", (), tuple(entries))


def _geometry(given: dict[str, Any], source: torch.Tensor, weight: torch.Tensor) -> dict[str, Any]:
    """Return the sizes of a convolution; a 1-d convolution becomes one over images of height 1."""
    lines = source.dim() == 3
    height, width = (1, source.shape[2]) if lines else tuple(source.shape[2:])
    groups = given["groups"]
    transposed = given["transposed"]
    geometry = {
        "in_channels": source.shape[1],
        "out_channels": weight.shape[1] * groups if transposed else weight.shape[0],
        "batch_size": source.shape[0],
        "input_height": height,
        "input_width": width,
        "kernel_size": (1, weight.shape[2]) if lines else tuple(weight.shape[2:]),
        "stride": _two(given["stride"], lines, 1),
        "padding": _two(given["padding"], lines, 0),
        "dilation": _two(given["dilation"], lines, 1),
        "groups": groups,
    }
    if transposed:
        geometry["output_padding"] = _two(given["output_padding"], lines, 0)
    return geometry


def _two(numbers: Any, lines: bool, neutral: int) -> tuple[int, int]:
    numbers = list(numbers)
    if lines:
        return neutral, numbers[0]
    return (numbers[0], numbers[-1])


def _preparation(value: Value, config: Make, geometry: dict[str, Any]) -> dict[str, Any]:
    return {
        "input_memory_config": _DRAM,
        "input_layout": Name("TILE_LAYOUT" if value.layout == "tile" else "ROW_MAJOR_LAYOUT"),
        "input_dtype": Name(value.dtype),
        "conv_config": config,
        "compute_config": COMPUTE,
        "device": DEVICE,
        **geometry,
    }


def _weights(
    lowering: Lowering, given: dict[str, Any], followers: Followers, dtype: Dtype
) -> tuple[Value, Value | None]:
    """Return weights and biases in the library's host form, with a batch norm folded in."""
    weight, bias = given["weight"], given["bias"]
    transposed, groups = given["transposed"], given["groups"]
    nodes = [weight] + ([bias] if bias is not None else [])
    norm = arguments(followers.batch_norm) if followers.batch_norm is not None else None
    folds: tuple[object, ...] = ()  # what the folded weights depend on, besides tensors
    if norm is not None:
        nodes += statistics_nodes(norm)
        folds = (statistics_names(norm), norm["eps"], transposed, groups, bias is None)

    def folded(*tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        rest = list(tensors[1:])
        kernel, shift = tensors[0], (rest.pop(0) if bias is not None else None)
        if norm is not None:
            scale, offset = scale_and_shift(norm, tuple(rest), norm["eps"])
            kernel = _scaled(kernel, scale, transposed, groups)
            shift = offset if shift is None else shift * scale + offset
        return kernel, shift

    def kernels(*tensors: torch.Tensor) -> torch.Tensor:
        kernel = folded(*tensors)[0]
        return kernel.unsqueeze(2) if kernel.dim() == 3 else kernel

    def shifts(*tensors: torch.Tensor) -> torch.Tensor:
        shift = folded(*tensors)[1]
        assert shift is not None
        return shift.reshape(1, 1, 1, -1)

    place: dict[str, Any] = {"dtype": dtype, "layout": "row_major", "on_device": False}
    matrix = lowering.computed(nodes, kernels, ("convolution", *folds), **place)
    if bias is None and norm is None:
        return matrix, None
    return matrix, lowering.computed(nodes, shifts, ("convolution's bias", *folds), **place)


def _scaled(kernel: torch.Tensor, scale: torch.Tensor, transposed: bool, groups: int) -> torch.Tensor:
    """Multiply the weights of each output channel by its scale."""
    if not transposed:
        return kernel * scale.reshape(-1, *[1] * (kernel.dim() - 1))
    apart = kernel.reshape(groups, -1, *kernel.shape[1:])
    return (apart * scale.reshape(groups, 1, -1, *[1] * (kernel.dim() - 2))).reshape(kernel.shape)

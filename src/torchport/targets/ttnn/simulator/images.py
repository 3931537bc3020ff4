"""Simulated convolutions, pooling and resampling on ttnn's flattened images.

Flattened images have the shape [1, 1, images × rows × columns, channels].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from torchport.targets.ttnn.functions import function
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.elementwise import activation
from torchport.targets.ttnn.simulator.movement import LAYOUTS
from torchport.targets.ttnn.simulator.tensors import Held, Made, hold, need_dtype, rounded
from torchport.targets.ttnn.ttnn_program import Call, DeviceTensor, Dtype

Pair = tuple[int, int]

_SIZES = """
in_channels out_channels batch_size input_height input_width kernel_size stride padding dilation groups
conv_config compute_config device
"""
_CONVOLUTION = f"{_SIZES} input_tensor weight_tensor bias_tensor dtype memory_config"
_POOL = "input_tensor batch_size input_h input_w channels output_layout memory_config"
_PREPARATION = f"{_SIZES} input_memory_config input_layout input_dtype"


def images(tensor: Held, batch: int, height: int, width: int, channels: int) -> torch.Tensor:
    """Return a flattened tensor as torch's images; a view, in torch's channels-last memory format."""
    if tensor.shape != (1, 1, batch * height * width, channels):
        refuse(
            "shape",
            f"the shape {list(tensor.shape)} does not hold {batch} images of {channels}×{height}×{width}",
        )
    return tensor.data.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def flattened(data: torch.Tensor) -> torch.Tensor:
    """Return torch's images in ttnn's flattened form."""
    return data.permute(0, 2, 3, 1).reshape(1, 1, -1, data.shape[1])


def takes_block_floats(**geometry: Any) -> bool:
    """Whether the library can prepare a convolution's weights in bfloat8_b.

    Where images may have to be sliced, it plans with row-major weights, which that dtype does not support.
    1-d convolutions, and those equal to a matrix product, are not sliced.
    """
    if "output_padding" in geometry or geometry["groups"] != 1:
        return False
    if geometry["input_height"] == 1 and geometry["kernel_size"][0] == 1:
        return True
    return (
        tuple(geometry["kernel_size"]) == (1, 1)
        and set(geometry["stride"]) | set(geometry["dilation"]) == {1}
        and set(geometry["padding"]) == {0}
    )


def _stored_as(conv_config: Made, parameters: dict[str, Any]) -> Dtype:
    dtype = conv_config.kwargs["weights_dtype"]
    if dtype == "bfloat8_b" and not takes_block_floats(**parameters):
        refuse("dtype", "ttnn cannot prepare the weights of this convolution in bfloat8_b")
    return dtype  # type: ignore[return-value]  # a dtype's name


@function(
    "prepare_conv_weights",
    "prepare_conv_transpose2d_weights",
    placeable=False,
    flops=None,
    keywords=f"{_PREPARATION} has_bias weights_format output_padding",
)
def prepare_weights(
    *,
    weight_tensor: Held,
    conv_config: Made,
    in_channels: int,
    out_channels: int,
    kernel_size: tuple[int, int],
    **parameters: Any,
) -> Held:
    """Prepare the weights for the device's kernels; here only for torch's."""
    need_dtype(weight_tensor, "bfloat16", "float32")
    data = weight_tensor.data
    if not data.is_meta:
        data = data.contiguous(memory_format=torch.channels_last)
    dtype = _stored_as(conv_config, {"kernel_size": kernel_size, **parameters})
    if dtype == "bfloat8_b":  # a row on the device holds one weight per output channel
        data = hold(data.movedim(0, -1), "bfloat8_b").data.movedim(-1, 0)
    own = (1, 1, kernel_size[0] * kernel_size[1] * in_channels, out_channels)
    return Held(data, dtype, "tile", own)


@function(
    "prepare_conv_bias", "prepare_conv_transpose2d_bias", placeable=False, flops=None, keywords=_PREPARATION
)
def prepare_bias(*, bias_tensor: Held, conv_config: Made, **parameters: Any) -> Held:
    """Prepare the biases."""
    if "output_padding" in parameters:
        refuse("argument", "biases are prepared without output_padding")
    need_dtype(bias_tensor, "bfloat16", "float32")
    return hold(bias_tensor.data.reshape(-1), _stored_as(conv_config, parameters))


def _flops(call: Call, tensors: Mapping[str, DeviceTensor]) -> float:
    given: dict[str, Any] = dict(call.kwargs)
    weights = math.prod(given["kernel_size"]) * given["in_channels"] / given["groups"]
    return 2.0 * math.prod(call.tensors[0].padded) * float(weights)


def _convolved(
    convolve: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor],
    *,
    input_tensor: Held,
    weight_tensor: Held,
    bias_tensor: Held | None = None,
    in_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    dtype: Dtype,
    conv_config: Made,
    **placement: Any,
) -> Held:
    """Compute a convolution with biases and an activation."""
    need_dtype(input_tensor, "bfloat16", "float32")
    data = images(input_tensor, batch_size, input_height, input_width, in_channels)
    weight = rounded(weight_tensor, input_tensor.dtype)
    bias = None if bias_tensor is None else rounded(bias_tensor, input_tensor.dtype)
    result = convolve(data, weight, bias)
    made = conv_config.kwargs.get("activation")
    if made is not None:
        assert isinstance(made, Made)
        result = activation(made)(result)
    return hold(flattened(result), dtype)


@function("conv2d", placeable=False, flops=_flops, reads_dram=True, keywords=_CONVOLUTION)
def conv2d(*, stride: Pair, padding: tuple[int, ...], dilation: Pair, groups: int, **rest: Any) -> Held:
    """Compute a convolution, with symmetric or asymmetric padding."""
    top, bottom, left, right = padding if len(padding) == 4 else (padding[0],) * 2 + (padding[1],) * 2

    def convolve(data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        around = (top, left)
        if (top, left) != (bottom, right):
            data, around = functional.pad(data, (left, right, top, bottom)), (0, 0)
        return functional.conv2d(data, weight, bias, stride, around, dilation, groups)

    return _convolved(convolve, **rest)


@function("conv_transpose2d", placeable=False, flops=_flops, reads_dram=True, keywords=_CONVOLUTION)
def conv_transpose2d(
    *, stride: Pair, padding: Pair, output_padding: Pair, dilation: Pair, groups: int, **rest: Any
) -> Held:
    """Compute a transposed convolution."""
    return _convolved(
        lambda data, weight, bias: functional.conv_transpose2d(
            data, weight, bias, stride, padding, output_padding, groups, dilation
        ),
        **rest,
    )


def _pooled(
    pool: Callable[[torch.Tensor], torch.Tensor],
    *,
    input_tensor: Held,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    output_layout: str,
) -> Held:
    need_dtype(input_tensor, "bfloat16")
    data = images(input_tensor, batch_size, input_h, input_w, channels)
    return hold(flattened(pool(data)), "bfloat16", LAYOUTS[output_layout])


@function("max_pool2d", placeable=False, flops=None, keywords=_POOL)
def max_pool2d(
    *, kernel_size: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool, **rest: Any
) -> Held:
    """Compute the maximum of each window."""
    window = (kernel_size, stride, padding, dilation, ceil_mode)
    return _pooled(lambda data: functional.max_pool2d(data, *window), **rest)


@function("avg_pool2d", placeable=False, flops=None, keywords=_POOL)
def avg_pool2d(
    *,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
    **rest: Any,
) -> Held:
    """Compute the mean of each window."""
    window = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _pooled(lambda data: functional.avg_pool2d(data, *window), **rest)


@function("upsample", placeable=False, flops=None)
def upsample(tensor: Held, scale: Pair, *, mode: str) -> Held:
    """Enlarge images by repeating each pixel."""
    need_dtype(tensor, "bfloat16", "float32")
    if tensor.data.dim() != 4 or tensor.layout != "row_major" or mode != "nearest":
        refuse("argument", "ttnn.upsample needs row-major images in four dimensions and the mode nearest")
    data = tensor.data.repeat_interleave(scale[0], 1).repeat_interleave(scale[1], 2)
    return Held(data, tensor.dtype, "row_major")

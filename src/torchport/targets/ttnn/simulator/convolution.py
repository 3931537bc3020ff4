"""Simulated convolutions, on ttnn's flattened images: [1, 1, images × rows × columns, channels]."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.elementwise import activation
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import Held, Made, hold, need_dtype, rounded
from torchport.targets.ttnn.ttnn_program import Dtype


def images(tensor: Held, batch: int, height: int, width: int, channels: int) -> torch.Tensor:
    """Return a flattened tensor as torch's images; a view, in the order that torch calls channels-last."""
    if tensor.shape != (1, 1, batch * height * width, channels):
        refuse("shape", f"{list(tensor.shape)} are not {batch} images of {channels}×{height}×{width}")
    return tensor.data.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


def flattened(data: torch.Tensor) -> torch.Tensor:
    """Return torch's images as ttnn's flattened ones."""
    return data.permute(0, 2, 3, 1).reshape(1, 1, -1, data.shape[1])


def takes_block_floats(**geometry: Any) -> bool:
    """Whether the library prepares a convolution's weights in bfloat8_b.

    Where images may have to be sliced, it plans with row-major weights, which that dtype has not. Not
    sliced are lines, and what is a product of matrices.
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


@kernel("prepare_conv_weights", "prepare_conv_transpose2d_weights")
def prepare_weights(
    *,
    weight_tensor: Held,
    conv_config: Made,
    in_channels: int,
    out_channels: int,
    kernel_size: tuple[int, int],
    **parameters: Any,
) -> Held:
    """The weights, ordered as the device wants them; here as torch does."""
    need_dtype(weight_tensor, "bfloat16", "float32")
    data = weight_tensor.data
    if not data.is_meta:
        data = data.contiguous(memory_format=torch.channels_last)
    dtype = _stored_as(conv_config, {"kernel_size": kernel_size, **parameters})
    if dtype == "bfloat8_b":  # a row on the device is one weight of each channel that comes out
        data = hold(data.movedim(0, -1), "bfloat8_b").data.movedim(-1, 0)
    own = (1, 1, kernel_size[0] * kernel_size[1] * in_channels, out_channels)
    return Held(data, dtype, "tile", own)


@kernel("prepare_conv_bias", "prepare_conv_transpose2d_bias")
def prepare_bias(*, bias_tensor: Held, conv_config: Made, **parameters: Any) -> Held:
    """The biases, likewise."""
    if "output_padding" in parameters:
        refuse("argument", "biases are prepared without output_padding")
    need_dtype(bias_tensor, "bfloat16", "float32")
    return hold(bias_tensor.data.reshape(-1), _stored_as(conv_config, parameters))


def _asymmetric(padding: tuple[int, ...]) -> tuple[int, int, int, int]:
    if len(padding) == 4:
        return padding
    return padding[0], padding[0], padding[1], padding[1]


def _finished(data: torch.Tensor, conv_config: Made, dtype: Dtype) -> Held:
    made = conv_config.kwargs.get("activation")
    if made is not None:
        assert isinstance(made, Made)
        data = activation(made)(data)
    return hold(flattened(data), dtype)


@kernel("conv2d")
def conv2d(
    *,
    input_tensor: Held,
    weight_tensor: Held,
    bias_tensor: Held | None = None,
    in_channels: int,
    out_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    kernel_size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    groups: int,
    dtype: Dtype,
    conv_config: Made,
    **placement: Any,
) -> Held:
    """A convolution with biases and an activation."""
    need_dtype(input_tensor, "bfloat16", "float32")
    data = images(input_tensor, batch_size, input_height, input_width, in_channels)
    top, bottom, left, right = _asymmetric(padding)
    if (top, left) != (bottom, right):
        data = functional.pad(data, (left, right, top, bottom))
        top = left = 0
    weight = rounded(weight_tensor, input_tensor.dtype)
    bias = None if bias_tensor is None else rounded(bias_tensor, input_tensor.dtype)
    result = functional.conv2d(data, weight, bias, stride, (top, left), dilation, groups)
    return _finished(result, conv_config, dtype)


@kernel("conv_transpose2d")
def conv_transpose2d(
    *,
    input_tensor: Held,
    weight_tensor: Held,
    bias_tensor: Held | None = None,
    in_channels: int,
    out_channels: int,
    batch_size: int,
    input_height: int,
    input_width: int,
    kernel_size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    output_padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    dtype: Dtype,
    conv_config: Made,
    **placement: Any,
) -> Held:
    """A transposed convolution with biases and an activation."""
    need_dtype(input_tensor, "bfloat16", "float32")
    data = images(input_tensor, batch_size, input_height, input_width, in_channels)
    weight = rounded(weight_tensor, input_tensor.dtype)
    bias = None if bias_tensor is None else rounded(bias_tensor, input_tensor.dtype)
    result = functional.conv_transpose2d(
        data, weight, bias, stride, padding, output_padding, groups, dilation
    )
    return _finished(result, conv_config, dtype)

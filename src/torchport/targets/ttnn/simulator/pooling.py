"""Simulated pooling and resampling, on flattened images."""

from __future__ import annotations

from typing import Any

from torch.nn import functional

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.convolution import flattened, images
from torchport.targets.ttnn.simulator.movement import LAYOUTS
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import Held, hold, need_dtype

Pair = tuple[int, int]


@kernel("max_pool2d")
def max_pool2d(
    *,
    input_tensor: Held,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
    output_layout: str,
    **placement: Any,
) -> Held:
    """The largest in each window."""
    need_dtype(input_tensor, "bfloat16")
    data = images(input_tensor, batch_size, input_h, input_w, channels)
    result = functional.max_pool2d(data, kernel_size, stride, padding, dilation, ceil_mode)
    return Held(flattened(result), "bfloat16", LAYOUTS[output_layout])


@kernel("avg_pool2d")
def avg_pool2d(
    *,
    input_tensor: Held,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None = None,
    output_layout: str,
    **placement: Any,
) -> Held:
    """The mean of each window."""
    need_dtype(input_tensor, "bfloat16")
    data = images(input_tensor, batch_size, input_h, input_w, channels)
    result = functional.avg_pool2d(
        data, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
    return hold(flattened(result), "bfloat16", LAYOUTS[output_layout])


@kernel("upsample")
def upsample(tensor: Held, scale: Pair, *, mode: str) -> Held:
    """Each pixel several times."""
    need_dtype(tensor, "bfloat16", "float32")
    if tensor.data.dim() != 4 or tensor.layout != "row_major" or mode != "nearest":
        refuse("argument", "only row-major images are enlarged, by whole factors, to the nearest pixel")
    data = tensor.data.repeat_interleave(scale[0], 1).repeat_interleave(scale[1], 2)
    return Held(data, tensor.dtype, "row_major")

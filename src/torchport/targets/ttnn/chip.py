"""Runs a program on a chip, with torch tensors in and out."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchport.targets.target import Runner
from torchport.targets.ttnn.execution import Array, Execution
from torchport.targets.ttnn.library import ttnn
from torchport.targets.ttnn.ttnn_program import L1_SMALL_BYTES, TtnnProgram

_lock = threading.Lock()  # a device takes one call at a time


@functools.cache
def open_device(device_id: int) -> Any:
    """Return a chip, opened once for the process."""
    return ttnn().open_device(device_id=device_id, l1_small_size=L1_SMALL_BYTES)


def on_chip(program: TtnnProgram, weights: Mapping[str, torch.Tensor], device_id: int) -> Runner:
    """Load a program on a chip and return a function that runs it."""
    arrays = {name: _array(tensor) for name, tensor in weights.items()}
    with _lock:
        execution = Execution(program, arrays, ttnn(), open_device(device_id))
    dtypes = [getattr(torch, crossing.host_dtype) for crossing in program.outputs]

    def run(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        with _lock:
            results = execution([_array(argument) for argument in arguments])
        return [torch.from_numpy(array).to(dtype) for array, dtype in zip(results, dtypes, strict=True)]

    return run


def _array(tensor: torch.Tensor) -> Array:
    """Return a tensor as a numpy array; bfloat16, which numpy lacks, becomes float32."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).contiguous().numpy()

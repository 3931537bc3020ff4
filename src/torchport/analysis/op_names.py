"""The Python names of ops: `aten::conv2d` is `torch.conv2d`."""

from __future__ import annotations

import functools

import torch

from torchport.torch_private import OpOverload

_NAMESPACES = {"fft_": "torch.fft", "linalg_": "torch.linalg", "special_": "torch.special"}


@functools.lru_cache(maxsize=4096)
def python_name(op: OpOverload) -> str:
    """Return the public Python name of an op; its name in `torch.ops` if there is none.

    Example:
        >>> python_name(torch.ops.aten.conv2d.default), python_name(torch.ops.aten.linear.default)
        ('torch.conv2d', 'torch.nn.functional.linear')
    """
    namespace, _, name = op._schema.name.partition("::")
    if namespace == "aten" and not name.startswith("_"):
        for prefix, place in _NAMESPACES.items():
            if name.startswith(prefix) and hasattr(getattr(torch, place[6:]), name.removeprefix(prefix)):
                return f"{place}.{name.removeprefix(prefix)}"
        if callable(getattr(torch, name, None)):
            return f"torch.{name}"
        if hasattr(torch.nn.functional, name):
            return f"torch.nn.functional.{name}"
        if hasattr(torch.Tensor, name):
            return f"torch.Tensor.{name}"
    return f"torch.ops.{namespace}.{name}"

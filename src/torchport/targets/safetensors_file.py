"""Writes a safetensors file one tensor after another: the library itself holds all of them once more."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from torchport.errors import TargetError

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


def write_safetensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors to a file.

    Args:
        tensors: contiguous ones on the CPU, by name.
        path: where to.

    Raises:
        TargetError: a dtype has no place in such a file.
    """
    head: dict[str, object] = {}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _DTYPES:
            raise TargetError(f"a weight of the dtype {tensor.dtype} cannot be written down", where=name)
        end = at + tensor.nbytes
        shape = list(tensor.shape)
        head[name] = {"dtype": _DTYPES[tensor.dtype], "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)  # so that the tensors lie at multiples of eight
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            if tensor.numel():
                file.write(tensor.detach().reshape(-1).view(torch.uint8).numpy().data)

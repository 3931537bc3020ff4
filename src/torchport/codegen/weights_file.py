"""Writes and reads the weights of a generated file."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import torch
from safetensors.torch import save_file

from torchport.errors import CodegenError


def write_weights(state: dict[str, torch.Tensor], path: Path) -> None:
    """Write weights whole or not at all, as `.pth` or `.safetensors`.

    Raises:
        CodegenError: the file cannot be written, or its ending is none of those.
    """
    if path.suffix not in (".pth", ".pt", ".safetensors"):
        raise CodegenError(
            f"unknown weights format {path.suffix!r}",
            where=str(path),
            remedy="name it .pth or .safetensors",
        )
    if any(tensor.is_meta for tensor in state.values()):
        return
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    values = {key: tensor.detach() for key, tensor in state.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if path.suffix == ".safetensors":
                # The format knows no shared memory: what is tied stands in it twice.
                save_file({key: value.contiguous().clone() for key, value in values.items()}, temporary)
            else:
                torch.save(values, temporary)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CodegenError(f"cannot be written: {error.strerror or error}", where=str(path)) from error

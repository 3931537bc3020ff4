"""Writes the weights of a generated file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from torchport.errors import CodegenError, RecordError, one_line
from torchport.records import atomic_write
from torchport.records.deferred_error_file import written_by_torch


def check_weights_name(path: Path) -> None:
    """Refuse a file name with an unknown extension.

    Raises:
        CodegenError: the extension is not `.pth`, `.pt` or `.safetensors`.
    """
    if path.suffix not in (".pth", ".pt", ".safetensors"):
        raise CodegenError(
            f"unknown weights format {path.suffix!r}",
            where=str(path),
            remedy="name it .pth or .safetensors",
        )


def write_weights(state: dict[str, torch.Tensor], path: Path) -> None:
    """Write weights atomically, as `.pth` or `.safetensors`; nothing is written for meta tensors.

    Raises:
        CodegenError: the file cannot be written, or its extension is unknown.
    """
    check_weights_name(path)
    if any(tensor.is_meta for tensor in state.values()):
        return
    values = {key: tensor.detach() for key, tensor in state.items()}
    try:
        with atomic_write(path) as temporary:
            if path.suffix == ".safetensors":
                # The format does not support shared memory: tied weights are written twice.
                save_file({key: value.contiguous().clone() for key, value in values.items()}, temporary)
            else:
                with written_by_torch(temporary) as file:
                    torch.save(values, file)  # type: ignore[arg-type]  # IO is abstract
    except RecordError as error:
        raise CodegenError(error.what, where=error.where) from error
    except SafetensorError as error:  # raised by the library if the disk is full
        raise CodegenError(f"cannot be written: {one_line(error)}", where=str(path)) from error

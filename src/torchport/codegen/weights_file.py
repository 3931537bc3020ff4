"""Writes and reads the weights of a generated file."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from torchport.errors import CodegenError, RecordError, one_line
from torchport.records import atomic_write
from torchport.records.error_keeping_file import written_by_torch


def check_weights_name(path: Path) -> None:
    """Refuse a file of which the ending does not say what kind it is.

    Raises:
        CodegenError: says which endings do.
    """
    if path.suffix not in (".pth", ".pt", ".safetensors"):
        raise CodegenError(
            f"unknown weights format {path.suffix!r}",
            where=str(path),
            remedy="name it .pth or .safetensors",
        )


def write_weights(state: dict[str, torch.Tensor], path: Path) -> None:
    """Write weights whole or not at all, as `.pth` or `.safetensors`.

    Raises:
        CodegenError: the file cannot be written, or its ending is none of those.
    """
    check_weights_name(path)
    if any(tensor.is_meta for tensor in state.values()):
        return
    values = {key: tensor.detach() for key, tensor in state.items()}
    try:
        with atomic_write(path) as temporary:
            if path.suffix == ".safetensors":
                # The format knows no shared memory: what is tied stands in it twice.
                save_file({key: value.contiguous().clone() for key, value in values.items()}, temporary)
            else:
                with written_by_torch(temporary) as file:
                    torch.save(values, file)  # type: ignore[arg-type]  # IO is abstract
    except RecordError as error:
        raise CodegenError(error.what, where=error.where) from error
    except SafetensorError as error:  # what the library makes of a full disk
        raise CodegenError(f"cannot be written: {one_line(error)}", where=str(path)) from error

"""Runs code that inductor compiled without importing inductor, which takes seconds: see `direct_write.py`.

The direct form is machine code and Python source: it must be trusted. Its layout is four bytes with the
length of a JSON header, the header, and the kernel files one after the other. The header has:

- `text`: Python that defines `call`, a function from a list of tensors to the results;
- `functions`: maps each name called on `extern_kernels` to the torch function that it stands for;
- `kernels`: `name`, `kind`, `bytes`, and for a GPU how the kernel is launched.
"""

from __future__ import annotations

import json
import marshal
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch

from torchport.errors import TargetError, one_line
from torchport.records import temporary_folder
from torchport.torch_private import load_kernel_library, load_static_kernel

LENGTH = struct.Struct("<I")
CPP, CUDA = "cpp", "cuda"
ALIGNMENT = 16  # in bytes: kernels were compiled for memory aligned to it


class DirectProgram:
    """A compiled graph, called like inductor's own: inputs and weights are positional arguments."""

    def __init__(self, call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]) -> None:
        self._call = call

    def __call__(self, *arguments: torch.Tensor) -> Sequence[torch.Tensor]:
        """Run the graph once."""
        aligned = [each if each.data_ptr() % ALIGNMENT == 0 else each.clone() for each in arguments]
        return self._call(aligned)


def read(form: bytes) -> DirectProgram:
    """Return the program. This runs code from the data: the data must be trusted.

    Raises:
        TargetError: the data is not a direct form, or this machine cannot load its kernels.
    """
    try:
        [size] = LENGTH.unpack_from(form)
        header = json.loads(form[LENGTH.size : LENGTH.size + size])
        kernels = {}
        at = LENGTH.size + size
        with temporary_folder("inductor") as folder:
            for index, entry in enumerate(header["kernels"]):
                path = Path(folder, f"{index}.{'so' if entry['kind'] == CPP else 'cubin'}")
                path.write_bytes(form[at : at + entry["bytes"]])
                at += entry["bytes"]
                kernels[entry["name"]] = (
                    load_kernel_library(str(path)) if entry["kind"] == CPP else CudaKernel(path, entry)
                )
        return DirectProgram(define(header["text"], header["functions"], kernels))
    except Exception as error:  # a damaged form or another driver may make it raise anything
        said = one_line(error)
        raise TargetError(f"the compiled form cannot be loaded: {said}", where="inductor") from error


def define(
    text: str, functions: Mapping[str, str], kernels: Mapping[str, object]
) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Return the function `call` defined by the text."""
    extern = SimpleNamespace(**{name: getattr(torch, own) for name, own in functions.items()})
    namespace: dict[str, Any] = {"__name__": __name__, "extern_kernels": extern, **kernels}
    exec(compile(text, "<inductor>", "exec"), namespace)  # the caller trusts it
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] = namespace["call"]
    return call


class CudaKernel:
    """A Triton kernel, launched by torch's own launcher: Triton itself is not needed."""

    def __init__(self, path: Path, entry: Mapping[str, Any]) -> None:
        self._warps, self._shared = entry["warps"], entry["shared"]
        self._types = entry["types"] + "O" * entry["scratch"]
        self._more = (None,) * entry["scratch"]  # scratch memory, which inductor's kernels never request
        self._start = load_static_kernel(str(path), entry["function"], self._shared, entry["device"])
        code = marshal.loads(bytes.fromhex(entry["launcher"]))  # the caller trusts it
        assert isinstance(code, CodeType)
        self.run = FunctionType(code, {"runner": self._launch})  # computes the grid

    def _launch(self, grid_x: int, grid_y: int, grid_z: int, stream: int, *arguments: object) -> None:
        given = (*arguments, *self._more)
        if len(given) != len(self._types):  # otherwise the kernel would read past its arguments
            raise TargetError("a kernel was called with the wrong number of arguments", where="inductor")
        self._start(grid_x, grid_y, grid_z, self._warps, self._shared, self._types, given, stream)

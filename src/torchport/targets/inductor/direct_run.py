"""Runs what inductor made without importing inductor, whose import takes seconds: see `direct_write.py`.

The form is machine code and Python's text: it must be trusted. Its layout is four bytes with the length of
a JSON header, the header, and the kernels' files one after the other. The header has:

- `text`: Python that defines `call`, a function from a list of tensors to the results;
- `functions`: which of torch's own it calls by which name of `extern_kernels`;
- `kernels`: `name`, `kind`, `bytes`, and for a GPU how it is launched.
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
ALIGNMENT = 16  # kernels were compiled for memory that begins at such addresses


class DirectProgram:
    """A compiled graph, called as inductor's own: inputs and weights, each an argument."""

    def __init__(self, call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]) -> None:
        self._call = call

    def __call__(self, *arguments: torch.Tensor) -> Sequence[torch.Tensor]:
        """Run it once."""
        aligned = [each if each.data_ptr() % ALIGNMENT == 0 else each.clone() for each in arguments]
        return self._call(aligned)


def read(form: bytes) -> DirectProgram:
    """Return the program. It runs what it reads: the data must be trusted.

    Raises:
        TargetError: it is not such a form, or this machine does not take its kernels.
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
    except Exception as error:  # whatever a damaged form or another driver makes it raise
        said = one_line(error)
        raise TargetError(f"the compiled form cannot be loaded: {said}", where="inductor") from error


def define(
    text: str, functions: Mapping[str, str], kernels: Mapping[str, object]
) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Return the function `call` that the text defines."""
    extern = SimpleNamespace(**{name: getattr(torch, own) for name, own in functions.items()})
    namespace: dict[str, Any] = {"__name__": __name__, "extern_kernels": extern, **kernels}
    exec(compile(text, "<inductor>", "exec"), namespace)  # the caller trusts it
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] = namespace["call"]
    return call


class CudaKernel:
    """A kernel of Triton's, launched by torch's own launcher: Triton is not needed for it."""

    def __init__(self, path: Path, entry: Mapping[str, Any]) -> None:
        self._warps, self._shared = entry["warps"], entry["shared"]
        self._types = entry["types"] + "O" * entry["scratch"]
        self._more = (None,) * entry["scratch"]  # memory that inductor's kernels never ask for
        self._start = load_static_kernel(str(path), entry["function"], self._shared, entry["device"])
        code = marshal.loads(bytes.fromhex(entry["launcher"]))  # the caller trusts it
        assert isinstance(code, CodeType)
        self.run = FunctionType(code, {"runner": self._launch})  # it computes the grid

    def _launch(self, grid_x: int, grid_y: int, grid_z: int, stream: int, *arguments: object) -> None:
        given = (*arguments, *self._more)
        if len(given) != len(self._types):  # else a kernel would read past them
            raise TargetError("a kernel takes other arguments than it is given", where="inductor")
        self._start(grid_x, grid_y, grid_z, self._warps, self._shared, self._types, given, stream)

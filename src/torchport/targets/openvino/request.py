"""A request of OpenVINO's on torch's own memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from torchport.targets.openvino.held_caches import ROWS, HeldCaches
from torchport.targets.openvino.held_rows import HeldRows
from torchport.targets.openvino.library import openvino
from torchport.targets.tensor_memory import as_array

# In bytes. Up to here a copy is cheaper than to set another output tensor.
_SMALL_OUTPUT = 1 << 16
# In bytes. Such an input is a new tensor on most calls, as a token is.
_SMALL_INPUT = 1 << 12


class Request:
    """A request of OpenVINO's with the memory that it reads and writes.

    Just after the device has emptied the caches every step is slow, setting a tensor above all. So an input
    at the same address is not set again, and small ones and small outputs have memory of their own: what
    outputs are copied to is made while the device computes.
    """

    def __init__(
        self,
        request: Any,
        inputs: int,
        outputs: Sequence[torch.dtype],
        sums: int,
        held: HeldCaches | None = None,
    ) -> None:
        self.request = request
        self._held = None if held is None else HeldRows(held, request)
        # The new rows of the first cache that is held, and of the last.
        self._rows = [] if held is None else [held.caches[0].made, held.caches[-1].made]
        totals = numpy.zeros(sums, dtype=numpy.float32)
        self.sums = memoryview(totals.data)
        for index in range(sums):
            total = totals[index : index + 1].reshape(())
            request.set_output_tensor(len(outputs) + index, openvino().Tensor(total, True))
        self._addresses = [-1] * inputs
        self._given: list[torch.Size | None] = [None] * inputs
        # The memory that small inputs are copied to, by their indices, and how many bytes they have.
        self._read: dict[int, tuple[torch.Tensor, int]] = {}
        self._dtypes = outputs
        self._shapes: list[tuple[int, ...]] | None = None
        self.is_new = True  # whether it was not seen yet what sizes the outputs have
        self._results: list[torch.Tensor | None] = []
        self._written: dict[int, torch.Tensor] = {}  # the memory of small outputs, by their indices
        self._sources: list[int] = []  # where it is
        self._sizes: list[int] = []
        self._copies: list[tuple[int, int, int]] = []  # to, from, bytes

    def give(
        self, kept: Sequence[torch.Tensor], sizes: Sequence[torch.Size], shapes: list[tuple[int, ...]]
    ) -> None:
        """Let the request read tensors, and write results where it should.

        Args:
            kept: the tensors, which the caller keeps until the results are there.
            sizes: theirs.
            shapes: of the results.

        Raises:
            OutOfRange: it holds caches, and the call does something else with them.
        """
        addresses = list(map(torch.Tensor.data_ptr, kept))
        if self._held is not None:
            self._held.prepare(kept, addresses, shapes[self._rows[0]][ROWS])
        for index, address in enumerate(addresses):
            if sizes[index] != self._given[index]:
                self._set_input(index, kept[index], sizes[index])
            elif index not in self._read and (address != self._addresses[index] or not address):
                self.request.set_input_tensor(index, _as_openvino(kept[index]))
            self._addresses[index] = address
        for index, (own, size) in self._read.items():
            ctypes.memmove(own.data_ptr(), addresses[index], size)
        if shapes != self._shapes:
            self._shapes = None  # until all of them have their memory
            small = [index for index, shape in enumerate(shapes) if self._is_small(index, shape)]
            self._written = {index: self._make(index, shapes[index]) for index in small}
            self._sources = [written.data_ptr() for written in self._written.values()]
            self._sizes = [written.nbytes for written in self._written.values()]
            self._shapes, self.is_new = shapes, True
        self._results = [
            None if index in self._written else self._make(index, shape) for index, shape in enumerate(shapes)
        ]

    def _set_input(self, index: int, argument: torch.Tensor, size: torch.Size) -> None:
        """Let the request read a tensor of another size than before, or a copy if it is small."""
        self._given[index] = None  # until it is set
        self._read.pop(index, None)
        given = argument
        if 0 < argument.nbytes <= _SMALL_INPUT:
            given = torch.empty_like(argument)
            self._read[index] = given, argument.nbytes
        self.request.set_input_tensor(index, _as_openvino(given))
        self._given[index] = size

    def prepare(self) -> None:
        """Make what `take` needs; called while the device computes."""
        made = list(map(torch.empty_like, self._written.values()))
        for index, result in zip(self._written, made, strict=True):
            self._results[index] = result
        self._copies = list(zip(map(torch.Tensor.data_ptr, made), self._sources, self._sizes, strict=True))

    def take(self) -> list[torch.Tensor]:
        """Return the results."""
        if self.is_new:
            self._check_shapes()
            self.is_new = False
        for result, written, size in self._copies:
            ctypes.memmove(result, written, size)
        if self._held is not None:
            self._held.note([self._own(index) for index in self._rows])
        results, self._results, self._copies = self._results, [], []
        return results  # type: ignore[return-value]  # `prepare` made those that were missing

    def forget(self) -> None:
        """Let the next call start from its own arguments alone."""
        if self._held is not None:
            self._held.forget()

    def _own(self, index: int) -> torch.Tensor:
        """Return what an output is, in memory that no caller has."""
        result = self._results[index]
        assert result is not None  # `prepare` made those that were missing
        return self._written[index] if index in self._written else result.clone()

    def _check_shapes(self) -> None:
        """Raise if an output has another shape than torch's, which only inputs of other sizes can change."""
        for index, shape in enumerate(self._shapes or ()):
            found = tuple(self.request.get_output_tensor(index).shape)
            if found != shape:
                raise RuntimeError(f"output {index} has the shape {found} instead of {shape}")

    def _is_small(self, index: int, shape: tuple[int, ...]) -> bool:
        return math.prod(shape) * self._dtypes[index].itemsize <= _SMALL_OUTPUT

    def _make(self, index: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Return memory that an output is written to."""
        made = torch.empty(shape, dtype=self._dtypes[index], device="cpu")
        self.request.set_output_tensor(index, _as_openvino(made))
        return made


def all_in_memory(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors whose elements lie in memory one after the other and as they are."""
    if all(map(torch.Tensor.is_contiguous, tensors)) and not any(map(torch.Tensor.is_neg, tensors)):
        return list(tensors)
    return [tensor.contiguous().resolve_neg() for tensor in tensors]


def _as_openvino(tensor: torch.Tensor) -> Any:
    """Return an OpenVINO tensor on the same memory."""
    if tensor.dtype is torch.bfloat16:
        array = as_array(tensor.detach().view(torch.int16))
        return openvino().Tensor(array.view(numpy.uint16), tensor.shape, openvino().Type.bf16)
    return openvino().Tensor(as_array(tensor), True)

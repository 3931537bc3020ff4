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


class Request:
    """A request of OpenVINO's with the memory that it reads and writes.

    Just after the device has emptied the caches every step is slow, setting a tensor above all. So an input
    at the same address is not set again, and small outputs have memory of their own: what they are copied to
    is made while the device computes.
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
        self._dtypes = outputs
        self._shapes: list[tuple[int, ...]] | None = None
        self._is_new = True  # whether it was not seen yet what sizes the outputs have
        self._results: list[torch.Tensor | None] = []
        self._written: dict[int, torch.Tensor] = {}  # the memory of small outputs, by their indices
        self._copies: list[tuple[int, int, int]] = []  # to, from, bytes

    def give(self, kept: Sequence[torch.Tensor], shapes: list[tuple[int, ...]]) -> None:
        """Let the request read these tensors, and write results of these shapes where it should.

        Raises:
            OutOfRange: it holds caches, and the call does something else with them.
        """
        if self._held is not None:
            self._held.prepare(kept, shapes[self._rows[0]][ROWS])
        for index, argument in enumerate(kept):
            address = argument.data_ptr()
            if address != self._addresses[index] or not address or argument.shape != self._given[index]:
                self.request.set_input_tensor(index, _as_openvino(argument))
                self._addresses[index], self._given[index] = address, argument.shape
        if shapes != self._shapes:
            self._shapes = None  # until all of them have their memory
            small = [index for index, shape in enumerate(shapes) if self._is_small(index, shape)]
            self._written = {index: self._make(index, shapes[index]) for index in small}
            self._shapes, self._is_new = shapes, True
        self._results = [
            None if index in self._written else self._make(index, shape) for index, shape in enumerate(shapes)
        ]

    def prepare(self) -> None:
        """Make what `take` needs; called while the device computes."""
        self._copies = []
        for index, written in self._written.items():
            result = self._results[index] = torch.empty_like(written)
            self._copies.append((result.data_ptr(), written.data_ptr(), written.nbytes))

    def take(self) -> list[torch.Tensor]:
        """Return the results."""
        if self._is_new:
            self._check_shapes()
            self._is_new = False
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


def as_in_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose elements lie in memory one after the other and as they are."""
    if tensor.is_contiguous() and not tensor.is_neg():
        return tensor
    return tensor.contiguous().resolve_neg()


def _as_openvino(tensor: torch.Tensor) -> Any:
    """Return an OpenVINO tensor on the same memory."""
    if tensor.dtype is torch.bfloat16:
        array = as_array(tensor.detach().view(torch.int16))
        return openvino().Tensor(array.view(numpy.uint16), tensor.shape, openvino().Type.bf16)
    return openvino().Tensor(as_array(tensor), True)

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
    outputs are copied to is made while the device computes. Results that the model gives as one, new rows of
    many caches, are parts of one tensor.
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
        # The new rows of the first cache that is held, and of the last, among the results.
        self._rows = [] if held is None else [held.caches[0].made, held.caches[-1].made]
        self._kept_rows: list[torch.Tensor | None] = []  # them, where they are in memory that no caller has
        # Which of the results each of the request's outputs is, and where in this order each result is.
        self._ports = [[index] for index in range(len(outputs))] if held is None else held.ports
        given = [index for places in self._ports for index in places]
        self._order: list[int] = numpy.argsort(given).tolist()
        totals = numpy.zeros(sums, dtype=numpy.float32)
        self.sums = memoryview(totals.data)
        for index in range(sums):
            total = totals[index : index + 1].reshape(())
            request.set_output_tensor(len(self._ports) + index, openvino().Tensor(total, True))
        self._addresses = [-1] * inputs
        self._given: list[torch.Size | None] = [None] * inputs
        # The memory that small inputs are copied to, by their indices, and how many bytes they have.
        self._read: dict[int, tuple[torch.Tensor, int]] = {}
        self._dtypes = [outputs[places[0]] for places in self._ports]
        self._shapes: list[tuple[int, ...]] | None = None  # of the results
        self._sizes: list[tuple[int, ...]] = []  # of the outputs
        self.is_new = True  # whether it was not seen yet what sizes the outputs have
        self._outputs: list[torch.Tensor | None] = []
        self._written: dict[int, torch.Tensor] = {}  # the memory of small outputs, by their indices
        self._sources: list[int] = []  # where it is
        self._lengths: list[int] = []  # in bytes
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
            self._sizes = [_joined_shape([shapes[place] for place in places]) for places in self._ports]
            small = [index for index, size in enumerate(self._sizes) if self._is_small(index, size)]
            self._written = {index: self._make(index, self._sizes[index]) for index in small}
            self._sources = [memory.data_ptr() for memory in self._written.values()]
            self._lengths = [memory.nbytes for memory in self._written.values()]
            written = self._apart([self._written.get(index) for index in range(len(self._ports))])
            self._kept_rows = [written[index] for index in self._rows]
            self._shapes, self.is_new = shapes, True
        self._outputs = [
            None if index in self._written else self._make(index, size)
            for index, size in enumerate(self._sizes)
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
            self._outputs[index] = result
        self._copies = list(zip(map(torch.Tensor.data_ptr, made), self._sources, self._lengths, strict=True))

    def take(self) -> list[torch.Tensor]:
        """Return the results."""
        if self.is_new:
            self._check_shapes()
            self.is_new = False
        for result, written, size in self._copies:
            ctypes.memmove(result, written, size)
        results = self._apart(self._outputs)  # `prepare` made those that were missing
        if self._held is not None:
            pairs = zip(self._rows, self._kept_rows, strict=True)
            self._held.note([results[index].clone() if kept is None else kept for index, kept in pairs])
        self._outputs, self._copies = [], []
        return results

    def _apart(self, outputs: list[Any]) -> list[Any]:
        """Return the results that outputs are, in order."""
        if len(outputs) == len(self._order):
            return outputs
        apart: list[Any] = []
        for places, output in zip(self._ports, outputs, strict=True):
            if len(places) == 1:
                apart.append(output)
            else:
                apart.extend([None] * len(places) if output is None else output.unbind())
        return [apart[index] for index in self._order]

    def forget(self) -> None:
        """Let the next call start from its own arguments alone."""
        if self._held is not None:
            self._held.forget()

    def _check_shapes(self) -> None:
        """Raise if an output has another shape than torch's, which only inputs of other sizes can change."""
        for index, shape in enumerate(self._sizes):
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


def _joined_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of what is one for results of these shapes."""
    if len(shapes) == 1:
        return shapes[0]
    if any(shape != shapes[0] for shape in shapes):  # a file may say anything
        raise RuntimeError(f"results of the shapes {shapes[0]} and others are given as one")
    return (len(shapes), *shapes[0])


def _as_openvino(tensor: torch.Tensor) -> Any:
    """Return an OpenVINO tensor on the same memory."""
    if tensor.dtype is torch.bfloat16:
        array = as_array(tensor.detach().view(torch.int16))
        return openvino().Tensor(array.view(numpy.uint16), tensor.shape, openvino().Type.bf16)
    return openvino().Tensor(as_array(tensor), True)

"""An OpenVINO infer request whose inputs and outputs are torch's own memory."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy
import torch

from torchport.targets.openvino.cache_states import CacheStates
from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.stateful_caches import ROWS, HeldCaches
from torchport.targets.tensor_memory import as_array

# In bytes. Up to this size, copying is cheaper than setting another output tensor.
_SMALL_OUTPUT = 1 << 16
# In bytes. An input up to this size, such as a token, is a new tensor on most calls.
_SMALL_INPUT = 1 << 12


class Request:
    """An infer request with the memory that it reads and writes.

    Computing an island evicts all else from the CPU's caches, so that every step of a call is slow, setting a
    tensor most of all. So an input at the same address is not set again, and small inputs and outputs are
    copied through buffers of the request; the copies of outputs are allocated while the device computes.
    Results that the model joins into one output (the new rows of many KV caches) are views of one tensor.
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
        self._held = None if held is None else CacheStates(held, request)
        # The results that are the new rows of the first and the last held cache.
        self._rows = [] if held is None else [held.caches[0].made, held.caches[-1].made]
        self._kept_rows: list[torch.Tensor | None] = []  # those rows, if in a buffer that no caller sees
        # The results that each of the request's outputs holds, and where in that order each result is.
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
        # The buffers of small inputs, by index, and their sizes in bytes.
        self._read: dict[int, tuple[torch.Tensor, int]] = {}
        self._dtypes = [outputs[places[0]] for places in self._ports]
        self._shapes: list[tuple[int, ...]] | None = None  # of the results
        self._sizes: list[tuple[int, ...]] = []  # of the outputs
        self.is_new = True  # whether the output shapes have not been checked yet
        self._outputs: list[torch.Tensor | None] = []
        self._written: dict[int, torch.Tensor] = {}  # the buffers of small outputs, by index
        self._sources: list[int] = []  # their addresses
        self._lengths: list[int] = []  # their sizes in bytes
        self._copies: list[tuple[int, int, int]] = []  # destination, source, bytes

    def bind(
        self, kept: Sequence[torch.Tensor], sizes: Sequence[torch.Size], shapes: list[tuple[int, ...]]
    ) -> None:
        """Set the request's input tensors, and output tensors for the results.

        Args:
            kept: the inputs, which the caller keeps alive until the request has run.
            sizes: the sizes of the inputs.
            shapes: the shapes of the results.

        Raises:
            OutOfRange: the model holds KV caches, and the call uses them in an unsupported way.
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
            self._shapes = None  # until all outputs have their memory
            self._sizes = [_joined_shape([shapes[place] for place in places]) for places in self._ports]
            small = [index for index, size in enumerate(self._sizes) if self._is_small(index, size)]
            self._written = {index: self._make(index, self._sizes[index]) for index in small}
            self._sources = [memory.data_ptr() for memory in self._written.values()]
            self._lengths = [memory.nbytes for memory in self._written.values()]
            written = self._split_joined([self._written.get(index) for index in range(len(self._ports))])
            self._kept_rows = [written[index] for index in self._rows]
            self._shapes, self.is_new = shapes, True
        self._outputs = [
            None if index in self._written else self._make(index, size)
            for index, size in enumerate(self._sizes)
        ]

    def _set_input(self, index: int, argument: torch.Tensor, size: torch.Size) -> None:
        """Set an input of a new size: the tensor itself, or a buffer for copies if it is small."""
        self._given[index] = None  # until the input is set
        self._read.pop(index, None)
        given = argument
        if 0 < argument.nbytes <= _SMALL_INPUT:
            given = torch.empty_like(argument)
            self._read[index] = given, argument.nbytes
        self.request.set_input_tensor(index, _as_openvino(given))
        self._given[index] = size

    def prepare(self) -> None:
        """Allocate the tensors that `take` copies small outputs to; called while the device computes."""
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
        results = self._split_joined(self._outputs)  # `prepare` allocated the small ones
        if self._held is not None:
            pairs = zip(self._rows, self._kept_rows, strict=True)
            self._held.note([results[index].clone() if kept is None else kept for index, kept in pairs])
        self._outputs, self._copies = [], []
        return results

    def _split_joined(self, outputs: list[Any]) -> list[Any]:
        """Split outputs that hold several results; return the results in their order."""
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
        """Discard the held states, so that the next call refills them from its arguments."""
        if self._held is not None:
            self._held.forget()

    def _check_shapes(self) -> None:
        """Raise if an output's shape differs from torch's; only new input sizes can change it."""
        for index, shape in enumerate(self._sizes):
            found = tuple(self.request.get_output_tensor(index).shape)
            if found != shape:
                raise RuntimeError(f"output {index} has the shape {found} instead of {shape}")

    def _is_small(self, index: int, shape: tuple[int, ...]) -> bool:
        return math.prod(shape) * self._dtypes[index].itemsize <= _SMALL_OUTPUT

    def _make(self, index: int, shape: tuple[int, ...]) -> torch.Tensor:
        """Allocate the tensor that an output is written to."""
        made = torch.empty(shape, dtype=self._dtypes[index], device="cpu")
        self.request.set_output_tensor(index, _as_openvino(made))
        return made


def all_in_memory(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors, copied where necessary to be contiguous and without lazy negation."""
    if all(map(torch.Tensor.is_contiguous, tensors)) and not any(map(torch.Tensor.is_neg, tensors)):
        return list(tensors)
    return [tensor.contiguous().resolve_neg() for tensor in tensors]


def _joined_shape(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape of an output that joins results of these shapes."""
    if len(shapes) == 1:
        return shapes[0]
    if any(shape != shapes[0] for shape in shapes):  # a file may say anything
        raise RuntimeError(f"results of different shapes, {shapes[0]} and others, are joined into one output")
    return (len(shapes), *shapes[0])


def _as_openvino(tensor: torch.Tensor) -> Any:
    """Return an OpenVINO tensor that shares the tensor's memory."""
    if tensor.dtype is torch.bfloat16:
        array = as_array(tensor.detach().view(torch.int16))
        return openvino().Tensor(array.view(numpy.uint16), tensor.shape, openvino().Type.bf16)
    return openvino().Tensor(as_array(tensor), True)

"""Runs a program's calls on the simulated device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchport.targets.ttnn.functions import FUNCTIONS
from torchport.targets.ttnn.simulator.tensors import Held, Made, hold
from torchport.targets.ttnn.ttnn_program import (
    Argument,
    Call,
    Crossing,
    Dtype,
    Layout,
    Make,
    Name,
    Ref,
    TtnnProgram,
)

# In bytes. If a program's weights exceed this in total, large ones stay as stored and are converted to
# float32, which takes twice the memory, only when used: this takes a small part of a call's time.
_MUCH = 1 << 30
_LARGE = 1 << 20  # only larger weights are worth it


@dataclass(frozen=True, slots=True, eq=False)
class _Stored:
    """A weight in its stored form."""

    data: torch.Tensor
    dtype: Dtype
    layout: Layout

    def held(self) -> Held:
        """Return the weight in the form that kernels take."""
        return hold(self.data, self.dtype, self.layout)


Values = dict[str, Held | _Stored]


class Simulation:
    """A program with its weights on the simulated device.

    Args:
        program: the program to run.
        weights: the weights by name, in their stored form.
    """

    def __init__(self, program: TtnnProgram, weights: Mapping[str, torch.Tensor]) -> None:
        self.program = program
        stored = {
            weight.name: _Stored(weights[weight.name], weight.tensor.dtype, weight.tensor.layout)
            for weight in program.weights
        }
        is_much = sum(weight.data.nbytes for weight in stored.values()) > _MUCH
        held: Values = {
            name: weight if is_much and weight.data.nbytes > _LARGE else weight.held()
            for name, weight in stored.items()
        }
        for call in program.load:
            _prepared(call)(held)
        self._weights = held
        self._steps = [_prepared(call) for call in program.calls]

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the program once."""
        values: Values = dict(self._weights)
        for crossing, argument in zip(self.program.inputs, arguments, strict=True):
            values[crossing.name] = to_device(crossing, argument)
        for step in self._steps:
            step(values)
        return [to_host(crossing, _found(values, crossing.name)) for crossing in self.program.outputs]


def to_device(crossing: Crossing, tensor: torch.Tensor) -> Held:
    """Return a host tensor in the device's form."""
    if crossing.order:
        tensor = tensor.permute(crossing.order)
    return hold(tensor.reshape(crossing.tensor.shape), crossing.tensor.dtype, crossing.tensor.layout)


def to_host(crossing: Crossing, held: Held) -> torch.Tensor:
    """Return a device tensor in the host's form."""
    data = held.data
    if crossing.order:
        data = data.reshape([crossing.host_shape[place] for place in crossing.order])
        inverse = sorted(range(len(crossing.order)), key=crossing.order.__getitem__)
        data = data.permute(inverse)
    # Always a copy: a result must not alias a weight or an input.
    return data.reshape(crossing.host_shape).to(getattr(torch, crossing.host_dtype), copy=True).contiguous()


def _prepared(call: Call) -> Callable[[Values], None]:
    """Return a call as a function on the values so far, so that its arguments are parsed only once."""
    run = FUNCTIONS[call.function]
    args = [_getter(argument) for argument in call.args]
    kwargs = [(key, _getter(argument)) for key, argument in call.kwargs]
    [result], frees = call.results, call.frees

    def step(values: Values) -> None:
        values[result] = run(*[get(values) for get in args], **{key: get(values) for key, get in kwargs})
        for name in frees:
            del values[name]

    return step


def _getter(argument: Argument) -> Callable[[Values], Any]:
    if isinstance(argument, Ref):
        return functools.partial(_found, name=argument.name)
    if isinstance(argument, tuple):
        parts = [_getter(item) for item in argument]
        return lambda values: tuple(part(values) for part in parts)
    constant = plain(argument)
    return lambda values: constant


def _found(values: Values, name: str) -> Held:
    value = values[name]
    return value if isinstance(value, Held) else value.held()


def plain(argument: Argument) -> Any:
    """Return a non-tensor argument in the form that kernels take."""
    if isinstance(argument, Name):
        return argument.path
    if isinstance(argument, Make):
        args = tuple(plain(item) for item in argument.args)
        return Made(argument.function, args, {key: plain(item) for key, item in argument.kwargs})
    if isinstance(argument, tuple):
        return tuple(plain(item) for item in argument)
    return argument

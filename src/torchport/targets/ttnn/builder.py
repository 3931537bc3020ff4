"""Writes a program call by call; each call is checked by its simulated kernel as it is added."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchport.targets.ttnn.program_check import check_call
from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator import FUNCTIONS, Held
from torchport.targets.ttnn.simulator.run import plain
from torchport.targets.ttnn.simulator.tensors import HELD_IN
from torchport.targets.ttnn.ttnn_program import (
    DEVICE,
    Argument,
    Call,
    Crossing,
    DeviceTensor,
    Dtype,
    Layout,
    Make,
    Name,
    Ref,
)
from torchport.targets.ttnn.ttnn_program import Weight as WeightRecord
from torchport.targets.ttnn.vocabulary import RESERVED


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A tensor of the program being written."""

    name: str
    held: Held  # without values

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self.held.shape

    @property
    def dtype(self) -> Dtype:
        """Its dtype on the device."""
        return self.held.dtype

    @property
    def layout(self) -> Layout:
        """Its layout on the device."""
        return self.held.layout


Data = Callable[[], torch.Tensor]


class Builder:
    """A program being written. The same call with the same arguments is added only once."""

    def __init__(self) -> None:
        self.inputs: list[Crossing] = []
        self.weights: dict[str, tuple[WeightRecord, Data]] = {}
        self.load: list[Call] = []
        self.calls: list[Call] = []
        self.constants: set[str] = set()  # weights, and results computed from them when loading
        self.module = ""  # the model's module that the added calls come from
        self._made: dict[object, Value] = {}
        self._names: set[str] = set(RESERVED)
        self._numbers: dict[str, int] = {}  # the last number appended to a name

    def fresh(self, wish: str) -> str:
        """Return an unused name that is a valid variable name."""
        wish = re.sub(r"[^A-Za-z0-9_]", "_", wish)
        wish = f"_{wish}" if not wish or wish[0].isdigit() else wish
        name, number = wish, self._numbers.get(wish, 1)
        while name in self._names:
            number += 1
            name = f"{wish}_{number}"
        self._numbers[wish] = number
        self._names.add(name)
        return name

    def input(self, crossing: Crossing) -> Value:
        """Add a tensor that is transferred to the device."""
        self.inputs.append(crossing)
        return Value(crossing.name, without_values(crossing.tensor))

    def weight(
        self,
        wish: str,
        shape: tuple[int, ...],
        dtype: Dtype,
        layout: Layout,
        data: Data,
        key: object,
        *,
        on_device: bool = True,
    ) -> Value:
        """Add a weight; its values are computed when the program is finished.

        Args:
            wish: its preferred name, used if it is free.
            shape, dtype, layout: its description on the device.
            data: returns its values.
            key: identifies the weight; a repeated key returns the weight already added.
            on_device: whether it is transferred to the device when the program is loaded.
        """
        full_key = ("weight", key, dtype, layout, on_device)
        if full_key in self._made:
            return self._made[full_key]
        tensor = DeviceTensor(shape, dtype, layout)
        name = self.fresh(wish)
        self.weights[name] = (WeightRecord(name, tensor, on_device), data)
        self.constants.add(name)
        value = self._made[full_key] = Value(name, without_values(tensor))
        return value

    def call(self, function: str, *args: Any, wish: str = "", load: bool = False, **kwargs: Any) -> Value:
        """Add a call and return its result.

        Args:
            function: its name in the library, without the leading `ttnn.`.
            args, kwargs: its arguments; keyword arguments that are `None` are omitted.
            wish: the result's preferred name, used if it is free.
            load: whether it runs once, when the program is loaded.

        Raises:
            Refused: the library would reject the call.
            TargetError: the call is not in the vocabulary of programs, so no reader would accept it.
        """
        given = {key: item for key, item in kwargs.items() if item is not None}
        frozen_args = tuple(_frozen(item) for item in args)
        frozen_kwargs = tuple((key, _frozen(item)) for key, item in given.items())
        check_call(function, frozen_args, frozen_kwargs)
        key = (function, _hashable(frozen_args), _hashable(frozen_kwargs))
        if key in self._made:
            return self._made[key]
        try:
            returned = FUNCTIONS[function](
                *[_seen(item) for item in args], **{name: _seen(item) for name, item in given.items()}
            )
        except RuntimeError as error:  # torch itself rejects the arguments
            refuse("argument", f"ttnn.{function}: {str(error).splitlines()[0][:200]}")
        if 0 in returned.shape:
            refuse("shape", "a tensor is empty")
        name = self.fresh(wish or function.rpartition(".")[2].rstrip("_"))
        made = Call(function, frozen_args, frozen_kwargs, (name,), (returned.description,), (), self.module)
        (self.load if load else self.calls).append(made)
        if load:
            self.constants.add(name)
        value = self._made[key] = Value(name, returned)
        return value


def without_values(tensor: DeviceTensor) -> Held:
    """Return a tensor on the meta device, as kernels see it when nothing is computed."""
    data = torch.empty(tensor.shape, dtype=HELD_IN[tensor.dtype], device="meta")
    return Held(data, tensor.dtype, tensor.layout)


def _frozen(argument: Any) -> Argument:
    if isinstance(argument, Value):
        return Ref(argument.name)
    if isinstance(argument, (list, tuple)):
        return tuple(_frozen(item) for item in argument)
    assert argument is None or isinstance(argument, (Name, Make, bool, int, float, str)), argument
    return argument


def _hashable(argument: object) -> object:
    """Return a key that distinguishes values that compare equal: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(argument, tuple):
        return tuple(_hashable(item) for item in argument)
    if isinstance(argument, (bool, int, float)):
        return type(argument), repr(argument)
    return argument


def _seen(argument: Any) -> Any:
    """Return an argument as a kernel sees it."""
    if isinstance(argument, Value):
        return argument.held
    if isinstance(argument, (list, tuple)):
        return tuple(_seen(item) for item in argument)
    return kernel_sees(argument)


def kernel_sees(argument: Argument) -> Any:
    """Return a non-tensor argument as a kernel sees it when nothing is computed."""
    if argument == DEVICE:
        return torch.device("meta")
    return plain(argument)

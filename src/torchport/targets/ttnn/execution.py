"""Runs a program with the library itself, and checks every result against the program; no torch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from torchport.errors import TargetError
from torchport.targets.ttnn.functions import FUNCTIONS
from torchport.targets.ttnn.ttnn_program import (
    Argument,
    Call,
    Crossing,
    DeviceTensor,
    Make,
    Name,
    Ref,
    TtnnProgram,
)
from torchport.targets.ttnn.vocabulary import FIDELITIES, MAKES, NAMES, need

Array = numpy.ndarray[Any, numpy.dtype[Any]]

_LAYOUTS = {"tile": "TILE_LAYOUT", "row_major": "ROW_MAJOR_LAYOUT"}


class Execution:
    """A program with its weights on a device.

    Args:
        program: the program to run.
        weights: the weights by name; those in bfloat16 as float32.
        ttnn: the module `ttnn`.
        device: an open ttnn device.
    """

    def __init__(self, program: TtnnProgram, weights: Mapping[str, Array], ttnn: Any, device: Any) -> None:
        self.program = program
        self._ttnn = ttnn
        self._device = device
        self._compute = ttnn.init_device_compute_kernel_config(
            device.arch(),
            math_fidelity=getattr(
                ttnn.MathFidelity, need("math fidelity", program.math_fidelity, FIDELITIES)
            ),
            math_approx_mode=False,
            fp32_dest_acc_en=True,
            packer_l1_acc=True,
        )
        self._weights = {
            weight.name: self._tensor(weights[weight.name], weight.tensor, weight.on_device)
            for weight in program.weights
        }
        for call in program.load:  # not checked: the library chooses the layout of prepared weights
            self._weights[call.results[0]] = self._call(call, self._weights)

    def __call__(self, arguments: Sequence[Array]) -> list[Array]:
        """Run the program once.

        Raises:
            TargetError: the library rejects a call, or returns another shape, dtype or layout.
        """
        values = dict(self._weights)
        for crossing, argument in zip(self.program.inputs, arguments, strict=True):
            values[crossing.name] = self._send(crossing, argument)
        for call in self.program.calls:
            result = self._call(call, values)
            self._check(call, result)
            values[call.results[0]] = result
            for name in call.frees:
                del values[name]  # the library frees a tensor without references
        return [self._receive(crossing, values[crossing.name]) for crossing in self.program.outputs]

    def _send(self, crossing: Crossing, array: Array) -> Any:
        if crossing.order:
            array = array.transpose(crossing.order)
        return self._tensor(array.reshape(crossing.tensor.shape), crossing.tensor, True)

    def _receive(self, crossing: Crossing, tensor: Any) -> Array:
        array: Array = tensor.to_numpy()
        if crossing.order:
            array = array.reshape([crossing.host_shape[place] for place in crossing.order])
            array = array.transpose(numpy.argsort(crossing.order))
        wanted = "float32" if crossing.host_dtype == "bfloat16" else crossing.host_dtype
        return array.reshape(crossing.host_shape).astype(wanted)

    def _tensor(self, array: Array, described: DeviceTensor, on_device: bool) -> Any:
        kinds = {"int32": numpy.int32, "uint32": numpy.uint32, "uint16": numpy.uint16}
        array = numpy.asarray(array, dtype=kinds.get(described.dtype, numpy.float32), order="C")
        dtype = getattr(self._ttnn, described.dtype)
        layout = getattr(self._ttnn, _LAYOUTS[described.layout])
        if not on_device:
            return self._ttnn.Tensor(array, dtype)
        return self._ttnn.Tensor(array, dtype, self._device, layout)

    def _call(self, call: Call, values: Mapping[str, Any]) -> Any:
        resolve = functools.partial(self._resolve, values=values)
        function = self._named(need("function", call.function, FUNCTIONS))
        try:
            return function(
                *[resolve(item) for item in call.args],
                **{key: resolve(item) for key, item in call.kwargs},
            )
        except (RuntimeError, TypeError, ValueError) as error:
            text = str(error).split("info:")[-1].strip().splitlines()
            raise TargetError(
                f"ttnn.{call.function} rejects the call: {text[0] if text else type(error).__name__}",
                where=f"{call.results[0]} = {call.tensors[0]}",
            ) from error

    def _named(self, path: str) -> Any:
        """Return the library's object with a name from the vocabulary."""
        return functools.reduce(getattr, path.split("."), self._ttnn)

    def _resolve(self, argument: Argument, values: Mapping[str, Any]) -> Any:
        if isinstance(argument, Ref):
            return values[argument.name]
        if isinstance(argument, Name):
            if argument.path in ("device", "compute"):
                return self._device if argument.path == "device" else self._compute
            return self._named(need("name", argument.path, NAMES))
        if isinstance(argument, Make):
            args = [self._resolve(item, values) for item in argument.args]
            kwargs = {key: self._resolve(item, values) for key, item in argument.kwargs}
            return self._named(need("object", argument.function, MAKES))(*args, **kwargs)
        if isinstance(argument, tuple):
            return [self._resolve(item, values) for item in argument]
        return argument

    def _check(self, call: Call, result: Any) -> None:
        expected = call.tensors[0]
        dtype = str(result.dtype).rpartition(".")[2].lower()
        layout = str(result.layout).rpartition(".")[2].lower()
        if (tuple(result.shape), dtype, layout) != (expected.shape, expected.dtype, expected.layout):
            found = f"{dtype}{list(result.shape)} {layout}"
            raise TargetError(f"ttnn.{call.function} returns {found}, not {expected}", where=call.results[0])

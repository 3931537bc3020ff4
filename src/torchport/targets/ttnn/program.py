"""The program record: the calls of ttnn's functions that make up an island, with typed arguments; no torch.

Three consumers read it: the simulator, the real library (`device.py`) and the script writer (`emit.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from torchport.errors import RecordError
from torchport.records import Record

Dtype = Literal["bfloat16", "bfloat8_b", "float32", "int32", "uint32", "uint16"]
Layout = Literal["tile", "row_major"]

TILE = 32  # a tile holds 32 × 32 elements
# A tile of bfloat8_b holds a byte an element, and one exponent for every 16 of them.
BYTES: dict[str, float] = {
    "bfloat16": 2, "bfloat8_b": 1.0625, "float32": 4, "int32": 4, "uint32": 4, "uint16": 2
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceTensor(Record):
    """What is known of a tensor on the device.

    Args:
        shape: its sizes, without the padding to whole tiles.
        dtype: ttnn's name for its elements' type.
        layout: `tile` (32 × 32 elements together) or `row_major`.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    layout: Layout

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape as it lies in memory."""
        if self.layout == "row_major":
            return self.shape
        rows = self.shape[-2] if len(self.shape) > 1 else 1
        columns = self.shape[-1] if self.shape else 1
        return (*self.shape[:-2], _whole_tiles(rows), _whole_tiles(columns))

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return math.ceil(math.prod(self.padded) * BYTES[self.dtype])

    def __str__(self) -> str:
        layout = "" if self.layout == "tile" else " row-major"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{layout}"


def _whole_tiles(size: int) -> int:
    return (size + TILE - 1) // TILE * TILE


@dataclass(frozen=True, slots=True)
class Ref:
    """An argument that is a tensor of the program, by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Name:
    """An argument that is a name of the library, such as `TILE_LAYOUT` or `bfloat16`."""

    path: str


@dataclass(frozen=True, slots=True)
class Make:
    """An argument that is an object of the library, such as `Conv2dConfig(...)`.

    Args:
        function: what makes it.
        args, kwargs: what it is made with.
    """

    function: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]


Argument: TypeAlias = "Ref | Name | Make | bool | int | float | str | tuple[Argument, ...] | None"

# What convolution and pooling keep their tables in, for each core.
L1_SMALL_BYTES = 24576

DEVICE = Name("device")
COMPUTE = Name("compute")  # how precisely kernels compute: one object for the whole program


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the library's functions.

    Args:
        function: its name, without the leading `ttnn.`.
        args, kwargs: its arguments.
        results: the names of what it returns.
        tensors: what is known of them.
        frees: the tensors that nobody needs after it.
        module: the module of the model that it comes from, such as `encoder.layer.0`.
    """

    function: str
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...]
    results: tuple[str, ...]
    tensors: tuple[DeviceTensor, ...]
    frees: tuple[str, ...] = ()
    module: str = ""

    def to_json(self) -> dict[str, object]:
        """Return the call as JSON."""
        return {
            "function": self.function,
            "args": [encode(item) for item in self.args],
            "kwargs": {key: encode(item) for key, item in self.kwargs},
            "results": list(self.results),
            "tensors": [tensor.to_json() for tensor in self.tensors],
            "frees": list(self.frees),
            "module": self.module,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Call:
        """Build the call from what `to_json` returned."""
        args, kwargs, results = data["args"], data["kwargs"], data["results"]
        tensors, frees = data["tensors"], data["frees"]
        assert isinstance(args, list)
        assert isinstance(kwargs, dict)
        assert isinstance(results, list)
        assert isinstance(tensors, list)
        assert isinstance(frees, list)
        return cls(
            str(data["function"]),
            tuple(decode(item) for item in args),
            tuple((key, decode(item)) for key, item in kwargs.items()),
            tuple(results),
            tuple(DeviceTensor.from_json(item) for item in tensors),
            tuple(frees),
            str(data["module"]),
        )


@dataclass(frozen=True, slots=True)
class Crossing(Record):
    """A tensor that crosses between host and device.

    The host's tensor, its dimensions in `order`, reshaped to the shape of `tensor`, is the device's.

    Args:
        name: its name in the program.
        tensor: what it is on the device.
        host_shape: its shape on the host.
        host_dtype: its dtype on the host, by torch's name.
        order: in which order the host's dimensions lie on the device; empty if unchanged.
    """

    name: str
    tensor: DeviceTensor
    host_shape: tuple[int, ...]
    host_dtype: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Weight(Record):
    """A tensor that the program brings along.

    Args:
        name: its name in the program, and in the file of weights.
        tensor: what it is.
        on_device: whether it goes to the device as it is; others are prepared by the calls of `load`.
    """

    name: str
    tensor: DeviceTensor
    on_device: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """An island as calls of ttnn's functions.

    Args:
        inputs, outputs: what crosses in one call.
        weights: what is on the device once it is loaded.
        load: the calls that prepare weights, once.
        calls: the calls of each run.
        math_fidelity: how many passes a multiplication takes; `HiFi4` is the most precise.
        peak_bytes: the most memory that weights and tensors take at once.
    """

    schema: ClassVar[str] = "torchport.ttnn_program/1"

    inputs: tuple[Crossing, ...]
    weights: tuple[Weight, ...]
    load: tuple[Call, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Crossing, ...]
    math_fidelity: str = "HiFi4"
    peak_bytes: int = 0

    def to_json(self) -> dict[str, object]:
        """Return the program as JSON."""
        return {
            "schema": self.schema,
            "inputs": [item.to_json() for item in self.inputs],
            "weights": [item.to_json() for item in self.weights],
            "load": [item.to_json() for item in self.load],
            "calls": [item.to_json() for item in self.calls],
            "outputs": [item.to_json() for item in self.outputs],
            "math_fidelity": self.math_fidelity,
            "peak_bytes": self.peak_bytes,
        }

    @classmethod
    def from_json(cls, data: dict[str, object]) -> Program:
        """Build the program from what `to_json` returned.

        Raises:
            RecordError: the schema is another one.
        """
        if data.get("schema") != cls.schema:
            raise RecordError(f"the schema is {data.get('schema')!r}, not {cls.schema!r}", where="Program")
        lists = {key: data[key] for key in ("inputs", "weights", "load", "calls", "outputs")}
        peak = data["peak_bytes"]
        assert all(isinstance(value, list) for value in lists.values())
        assert isinstance(peak, int)
        return cls(
            tuple(map(Crossing.from_json, lists["inputs"])),  # type: ignore[call-overload]  # checked above
            tuple(map(Weight.from_json, lists["weights"])),  # type: ignore[call-overload]
            tuple(map(Call.from_json, lists["load"])),  # type: ignore[call-overload]
            tuple(map(Call.from_json, lists["calls"])),  # type: ignore[call-overload]
            tuple(map(Crossing.from_json, lists["outputs"])),  # type: ignore[call-overload]
            str(data["math_fidelity"]),
            peak,
        )


def encode(argument: Argument) -> object:
    """Return an argument's JSON; what JSON has no form for becomes a one-entry object."""
    if isinstance(argument, Ref):
        return {"ref": argument.name}
    if isinstance(argument, Name):
        return {"name": argument.path}
    if isinstance(argument, Make):
        kwargs = {key: encode(item) for key, item in argument.kwargs}
        return {"make": [argument.function, [encode(item) for item in argument.args], kwargs]}
    if isinstance(argument, tuple):
        return [encode(item) for item in argument]
    if isinstance(argument, float) and not math.isfinite(argument):
        return {"float": str(argument)}
    return argument


def decode(data: object) -> Argument:
    """Return the argument that `encode` wrote."""
    if isinstance(data, list):
        return tuple(decode(item) for item in data)
    if not isinstance(data, dict):
        assert data is None or isinstance(data, (bool, int, float, str))
        return data
    [(kind, value)] = data.items()
    if kind == "ref":
        return Ref(value)
    if kind == "name":
        return Name(value)
    if kind == "float":
        return float(value)
    function, args, kwargs = value
    return Make(
        function,
        tuple(decode(item) for item in args),
        tuple((key, decode(item)) for key, item in kwargs.items()),
    )


def refs_in(call: Call) -> list[str]:
    """Return the names of the tensors that a call takes."""
    found: list[str] = []
    for argument in (*call.args, *[item for _, item in call.kwargs]):
        _collect(argument, found)
    return found


def _collect(argument: Argument, found: list[str]) -> None:
    if isinstance(argument, Ref):
        found.append(argument.name)
    elif isinstance(argument, tuple):
        for item in argument:
            _collect(item, found)

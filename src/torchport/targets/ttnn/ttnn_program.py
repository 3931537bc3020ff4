"""The program record: the ttnn calls that make up an island, with typed arguments; does not need torch.

Three consumers use it: the simulator, the real library (`execution.py`) and the script writer (`emit.py`).
Programs from files go through `program_check.read_program`, so that no consumer gets an unchecked one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from torchport.records import JSON, Record
from torchport.targets.ttnn.arguments import (
    COMPUTE,
    DEVICE,
    Argument,
    Keywords,
    Make,
    Name,
    Ref,
    decode,
    decode_keywords,
    encode,
    malformed,
    mapped,
    refs_among,
)

__all__ = [
    "BYTES",
    "COMPUTE",
    "DEVICE",
    "FORMAT",
    "L1_SMALL_BYTES",
    "TILE",
    "Argument",
    "Call",
    "Crossing",
    "DeviceTensor",
    "Dtype",
    "Layout",
    "Make",
    "Name",
    "TtnnProgram",
    "Ref",
    "Weight",
    "refs_in",
]

Dtype = Literal["bfloat16", "bfloat8_b", "bfloat4_b", "float32", "int32", "uint32", "uint16"]
Layout = Literal["tile", "row_major"]

FORMAT = 4  # of built islands; raised whenever `build` writes something other than before
TILE = 32  # a tile holds 32 × 32 elements
# Block floats: bfloat8_b has a byte per element, bfloat4_b half a byte, plus an exponent for every 16.
BYTES: dict[str, float] = {
    "bfloat16": 2, "bfloat8_b": 1.0625, "bfloat4_b": 0.5625, "float32": 4, "int32": 4, "uint32": 4,
    "uint16": 2,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeviceTensor(Record):
    """The description of a tensor on the device.

    Args:
        shape: its shape, without the padding to whole tiles.
        dtype: ttnn's name for its elements' type.
        layout: `tile` (32 × 32 elements together) or `row_major`.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    layout: Layout

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape in memory, padded to whole tiles."""
        if self.layout == "row_major":
            return self.shape
        rows = self.shape[-2] if len(self.shape) > 1 else 1
        columns = self.shape[-1] if self.shape else 1
        return (*self.shape[:-2], _whole_tiles(rows), _whole_tiles(columns))

    @property
    def bytes(self) -> int:
        """Its size in memory."""
        return math.ceil(math.prod(self.padded) * BYTES[self.dtype])

    def __str__(self) -> str:
        layout = "" if self.layout == "tile" else " row-major"
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{layout}"


def _whole_tiles(size: int) -> int:
    return (size + TILE - 1) // TILE * TILE


# The memory per core reserved for the tables of convolution and pooling.
L1_SMALL_BYTES = 24576


@dataclass(frozen=True, slots=True)
class _CallFields(Record):
    """The fields of a call's JSON other than its arguments."""

    function: str
    results: tuple[str, ...]
    tensors: tuple[DeviceTensor, ...]
    frees: tuple[str, ...]
    module: str


@dataclass(frozen=True, slots=True)
class Call(Record):
    """A call of one of the library's functions.

    Args:
        function: its name, without the leading `ttnn.`.
        args, kwargs: its arguments.
        results: the names of its results.
        tensors: the descriptions of its results.
        frees: the tensors that are no longer needed after it.
        module: the module of the model that it comes from, such as `encoder.layer.0`.
    """

    function: str
    args: tuple[Argument, ...]
    kwargs: Keywords
    results: tuple[str, ...]
    tensors: tuple[DeviceTensor, ...]
    frees: tuple[str, ...] = ()
    module: str = ""

    def reading(self, names: Mapping[str, str]) -> Call:
        """Return the same call with its input tensors renamed."""

        def change(item: Argument) -> Argument:
            return Ref(names.get(item.name, item.name)) if isinstance(item, Ref) else item

        kwargs = tuple((key, mapped(item, change)) for key, item in self.kwargs)
        return replace(self, args=mapped(self.args, change), kwargs=kwargs)

    def to_json(self) -> dict[str, JSON]:
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
    def from_json(cls, data: JSON) -> Call:
        """Build the call from what `to_json` returned.

        Raises:
            RecordError, TargetError: the JSON is not a call.
        """
        rest = _CallFields.from_json(data)
        assert isinstance(data, Mapping)  # a record is one
        args = decode(data.get("args"))
        if not isinstance(args, tuple):
            raise malformed("a call", data)
        kwargs = decode_keywords(data.get("kwargs"))
        return cls(rest.function, args, kwargs, rest.results, rest.tensors, rest.frees, rest.module)


@dataclass(frozen=True, slots=True)
class Crossing(Record):
    """A tensor that is transferred between host and device.

    The device's tensor is the host's, with its dimensions permuted by `order` and then reshaped.

    Args:
        name: its name in the program.
        tensor: its description on the device.
        host_shape: its shape on the host.
        host_dtype: its dtype on the host, by torch's name.
        order: the order of the host's dimensions on the device; empty if unchanged.
    """

    name: str
    tensor: DeviceTensor
    host_shape: tuple[int, ...]
    host_dtype: str
    order: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Weight(Record):
    """A constant tensor that is stored with the program.

    Args:
        name: its name in the program, and in the file of weights.
        tensor: its description.
        on_device: whether it is transferred to the device as it is; otherwise calls of `load` prepare it.
    """

    name: str
    tensor: DeviceTensor
    on_device: bool = True


@dataclass(frozen=True, slots=True)
class TtnnProgram(Record):
    """An island as a sequence of ttnn calls.

    Args:
        inputs, outputs: the tensors transferred in each run.
        weights: the tensors on the device once the program is loaded.
        load: the calls that prepare weights, once.
        calls: the calls of each run.
        math_fidelity: how many passes a multiplication takes; `HiFi4` is the most precise.
        peak_bytes: the peak memory of weights and other tensors.
    """

    schema: ClassVar[str] = "torchport.ttnn_program/1"

    inputs: tuple[Crossing, ...]
    weights: tuple[Weight, ...]
    load: tuple[Call, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Crossing, ...]
    math_fidelity: str = "HiFi4"
    peak_bytes: int = 0


def refs_in(call: Call) -> list[str]:
    """Return the names of the tensors that a call reads."""
    return refs_among((*call.args, *[item for _, item in call.kwargs]))

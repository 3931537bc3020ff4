"""The program record: the calls of ttnn's functions that make up an island, with typed arguments; no torch.

Three consumers read it: the simulator, the real library (`execution.py`) and the script writer (`emit.py`).
What a file holds is read by `program_check.read_program`, so that none of them meets anything else.
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

FORMAT = 3  # of built islands; raised whenever something else is written than before
TILE = 32  # a tile holds 32 × 32 elements
# A tile of bfloat8_b holds a byte an element, of bfloat4_b half a byte, and an exponent for every 16 of them.
BYTES: dict[str, float] = {
    "bfloat16": 2, "bfloat8_b": 1.0625, "bfloat4_b": 0.5625, "float32": 4, "int32": 4, "uint32": 4,
    "uint16": 2,
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


# What convolution and pooling keep their tables in, for each core.
L1_SMALL_BYTES = 24576


@dataclass(frozen=True, slots=True)
class _CallFields(Record):
    """The fields of a call's JSON that are no arguments."""

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
        results: the names of what it returns.
        tensors: what is known of them.
        frees: the tensors that nobody needs after it.
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
        """Return the same call on tensors of other names."""

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
            RecordError, TargetError: it is something else.
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
class TtnnProgram(Record):
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


def refs_in(call: Call) -> list[str]:
    """Return the names of the tensors that a call takes."""
    return refs_among((*call.args, *[item for _, item in call.kwargs]))

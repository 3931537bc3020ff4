"""Writes tensors as safetensors one after another, and reads them without a copy.

The safetensors library itself keeps a second copy of all of them, on writing and on reading.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy
import torch

from torchport.errors import RecordError, TargetError
from torchport.records import JSON, parse_object
from torchport.targets.mapped_payload import new_payload
from torchport.verification import tensor_bytes

Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}


_NAMES = {name: dtype for dtype, name in _DTYPES.items()}
_LENGTH = 8  # bytes of the header's length field
_LONGEST_HEAD = 100_000_000  # bytes; the library's own limit
ALIGNMENT = 8  # of the start of the tensors, in bytes


def storable(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return tensors in a form that can be stored, and the names of complex ones, which are stored as pairs.

    Raises:
        TargetError: a tensor's layout cannot be stored.
    """
    made: dict[str, torch.Tensor] = {}
    complexes: list[str] = []
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided:
            raise TargetError(f"a weight of the layout {tensor.layout} cannot be stored", where=name)
        plain = tensor.detach().resolve_conj().resolve_neg()
        if plain.is_complex():
            complexes.append(name)
            plain = torch.view_as_real(plain)
        made[name] = plain.contiguous()
    return made, complexes


def restored(tensors: Mapping[str, torch.Tensor], complexes: JSON) -> dict[str, torch.Tensor]:
    """Return the original tensors, the inverse of `storable`.

    Raises:
        TargetError: a name in `complexes` is not that of a tensor of pairs.
    """
    names = complexes if isinstance(complexes, list) else [None]
    made = dict(tensors)
    for name in names:
        pairs = tensors.get(name) if isinstance(name, str) else None
        if pairs is None or not pairs.is_floating_point() or pairs.dim() < 1 or pairs.shape[-1] != 2:
            raise TargetError(f"the weight {str(name)[:80]!r} is not complex")
        made[str(name)] = torch.view_as_complex(pairs)
    return made


def write_safetensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write tensors, as `storable` returns them, to a file.

    Raises:
        TargetError: a dtype cannot be stored.
    """
    with path.open("wb") as file:
        for part in _parts(tensors):
            file.write(part)


def safetensors_bytes(
    tensors: Mapping[str, torch.Tensor],
    *,
    after: bytes = b"",
    values: Callable[[str], torch.Tensor] | None = None,
) -> Bytes:
    """Return tensors, as `storable` returns them, as the bytes of a file, after a prefix.

    Args:
        tensors: the tensors by name.
        after: the prefix.
        values: returns the values for a name, if `tensors` has only shapes and dtypes; called for one name at
            a time, so that not all values are in memory at once.
    """
    head, in_order = _head(tensors)
    made = new_payload(len(after) + len(head) + sum(tensor.nbytes for _, tensor in in_order))
    before = len(after) + len(head)
    made[:before] = numpy.frombuffer(after + head, dtype=numpy.uint8)
    for name, tensor in in_order:
        content = _bytes_of(tensor if values is None else values(name))
        made[before : before + tensor.nbytes] = numpy.frombuffer(content, dtype=numpy.uint8)
        before += tensor.nbytes
    return made


def _parts(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    head, in_order = _head(tensors)
    yield head
    for _, tensor in in_order:
        yield _bytes_of(tensor)


def _bytes_of(tensor: torch.Tensor) -> bytes | memoryview:
    return tensor_bytes(tensor).numpy().data if tensor.numel() else b""


def _head(tensors: Mapping[str, torch.Tensor]) -> tuple[bytes, list[tuple[str, torch.Tensor]]]:
    """Return the header of a file, and the tensors in the order that they follow it."""
    head: dict[str, object] = {}
    at = 0
    in_order = sorted(tensors.items(), key=lambda item: -item[1].element_size())  # keeps each aligned
    for name, tensor in in_order:
        if tensor.dtype not in _DTYPES:
            raise TargetError(f"a weight of the dtype {tensor.dtype} cannot be stored", where=name)
        end = at + tensor.nbytes
        head[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(_LENGTH, "little") + text, in_order


def read_safetensors(content: Bytes) -> dict[str, torch.Tensor]:
    """Return the tensors of a file's content, as views of its memory; several names may share bytes.

    Raises:
        TargetError: it is not a valid safetensors file.
    """
    size = int.from_bytes(content[:_LENGTH].tobytes(), "little")
    if content.size < _LENGTH or size > content.size - _LENGTH:
        raise TargetError("the weights are truncated")
    head = _parse_head(content[_LENGTH : _LENGTH + size].tobytes())
    data = content[_LENGTH + size :]
    if data.ctypes.data % ALIGNMENT or not data.flags.writeable:  # from another writer, or mapped read-only
        data = data.copy()
    return {name: _tensor(data, entry, name) for name, entry in head.items()}


def tensor_places(content: Bytes) -> list[tuple[int, int]]:
    """Return the start and length of each tensor in a file's content.

    Raises:
        TargetError: it is not a valid safetensors file.
    """
    size = int.from_bytes(content[:_LENGTH].tobytes(), "little")
    if content.size < _LENGTH or size > content.size - _LENGTH:
        raise TargetError("the weights are truncated")
    begin = _LENGTH + size
    head = _parse_head(content[_LENGTH:begin].tobytes())
    places = [_described(entry, name, int(content.size) - begin)[2] for name, entry in head.items()]
    return [(begin + start, end - start) for start, end in places]


def read_row_of_bytes(file: BinaryIO, name: str) -> Bytes:
    """Return a one-dimensional uint8 tensor of an open file, without reading the other tensors.

    Raises:
        TargetError: it is not a valid safetensors file, or has no such tensor.
        OSError: it cannot be read.
    """
    total = os.fstat(file.fileno()).st_size
    size = int.from_bytes(file.read(_LENGTH), "little")
    if total < _LENGTH or size > min(total - _LENGTH, _LONGEST_HEAD):
        raise TargetError("the weights are truncated")
    entry = _parse_head(file.read(size)).get(name)
    dtype, sizes, (start, end) = _described(entry, name, total - _LENGTH - size)
    if dtype is not torch.uint8 or len(sizes) != 1:
        raise TargetError(f"{name[:80]!r} is not a one-dimensional uint8 tensor")
    file.seek(_LENGTH + size + start)
    made = new_payload(end - start)
    if made.size and file.readinto(made.data) != made.size:  # type: ignore[attr-defined]  # buffered
        raise TargetError("the weights are truncated")
    return made


def _parse_head(text: bytes) -> dict[str, JSON]:
    try:
        head = parse_object(text, "the header of the weights")
    except RecordError as error:
        raise TargetError(f"{error.where} {error.what}") from error
    return {name: entry for name, entry in head.items() if name != "__metadata__"}


def _tensor(data: Bytes, entry: JSON, name: str) -> torch.Tensor:
    dtype, sizes, (start, end) = _described(entry, name, data.size)
    if start == end:
        return torch.empty(sizes, dtype=dtype)
    if start % dtype.itemsize:
        raise TargetError(f"the weight {name[:80]!r} is not aligned for its dtype")
    return torch.from_numpy(data[start:end]).view(dtype).reshape(sizes)


def _described(entry: JSON, name: str, limit: int) -> tuple[torch.dtype, list[int], tuple[int, int]]:
    """Return a tensor's dtype, sizes, and the start and end of its bytes, checked."""
    fields = entry if isinstance(entry, Mapping) else {}
    dtype = _NAMES.get(str(fields.get("dtype")))
    sizes, offsets = _whole_numbers(fields.get("shape")), _whole_numbers(fields.get("data_offsets"))
    if dtype is None or sizes is None or offsets is None or len(offsets) != 2:
        raise TargetError(f"the header entry of the weight {name[:80]!r} is missing or malformed")
    start, end = offsets
    if end > limit or end - start != math.prod(sizes) * dtype.itemsize:
        raise TargetError(f"the weight {name[:80]!r} does not have the size of its bytes")
    return dtype, sizes, (start, end)


def _whole_numbers(values: object) -> list[int] | None:
    """Return a list of non-negative integers; None if it is something else."""
    if isinstance(values, list) and all(type(value) is int and value >= 0 for value in values):
        return values
    return None

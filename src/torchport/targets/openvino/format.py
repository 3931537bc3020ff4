"""The layout of an island built for OpenVINO: what `build` writes and `load` reads.

The payload is the model's weights, its XML, and in packages the device's own compiled form; each starts at a
multiple of 64 bytes. The weights come first: a compiled form that holds none finds them at their offsets in
a file. The other two are packed, by zlib. The properties are:

- `format`: the number below;
- `weights_bytes`: where the weights end;
- `xml_at`, `xml_bytes`: where the XML lies; `xml_size`: how many bytes it has unpacked;
- `compiled`, if there is such a form: `at`, `bytes` and `size`, as of the XML; `made_for`, what must be the
  same here for it to be used; see `compiled_form.py`;
- `copies`: which outputs are an input, reshaped at most, by their indices; the model lacks them;
- `input_ranges`, `finite_inputs`, `sums`: see `call_checks.py`;
- `output_sizes` and `guards`, if sizes are open: see `open_sizes.py`.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy

from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.artifact_properties import is_whole, read_by_place, read_number, refuse_property
from torchport.targets.call_checks import CallChecks

FORMAT = 12
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

# How many times as large as it lies in a file something may be: a small file must not take much memory.
_MOST_TIMES = 100


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties that a run needs, checked."""

    copies: dict[int, int]
    checks: CallChecks

    def model_outputs(self, outputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Return what the model itself gives of an island's outputs, and its sums."""
        if len(self.copies) == len(outputs) and not self.checks.sums:
            return list(outputs)  # a model without any is none; see `build.py`
        given = [spec for index, spec in enumerate(outputs) if index not in self.copies]
        return given + [TensorSpec((), "float32")] * len(self.checks.sums)


def read_properties(
    given: Mapping[str, object], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Properties:
    """Return an island's properties.

    Raises:
        TargetError: one is missing, of another kind, or names a tensor that is not there.
    """
    copies = {}
    for output, source in read_by_place(given, "copies", len(outputs), "openvino"):
        if not is_whole(source) or not 0 <= source < len(inputs):
            raise refuse_property("openvino", "copies", source)
        given_one, made = inputs[source], outputs[output]
        is_open = -1 in (*given_one.shape, *made.shape)  # a call sees whether they are as many
        if given_one.dtype != made.dtype or not (is_open or given_one.elements == made.elements):
            raise refuse_property("openvino", "copies", source)
        copies[output] = source
    return Properties(copies, CallChecks(given, inputs, "openvino"))


def aligned(size: int) -> int:
    """Return the next multiple of 64: OpenVINO uses weights where they lie, if they lie so."""
    return (size + 63) // 64 * 64


def pack(content: bytes, *, smaller: bool = True) -> Bytes:
    """Return bytes for a payload.

    Args:
        content: the bytes.
        smaller: whether to make them smaller, which takes long for weights, and gains nothing.
    """
    packed = zlib.compress(content, 6 if smaller else 0)
    if len(content) > _MOST_TIMES * len(packed):  # no reader would unpack it
        packed = zlib.compress(content, 0)
    return numpy.frombuffer(packed, dtype=numpy.uint8)


def unpack(packed: Bytes, properties: Mapping[str, object], key: str, most: int | None = None) -> bytes:
    """Return what was packed. No more memory is taken than the properties say, and they are checked first.

    Args:
        packed: what lies in the payload.
        properties: say how many bytes it has unpacked.
        key: by which name.
        most: how many it may have.

    Raises:
        TargetError: it would be too large, or is damaged.
    """
    limit = _MOST_TIMES * int(packed.size)
    size = read_number(properties, key, limit if most is None else min(limit, most), "openvino")
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(packed.data, max(1, size))
        rest = reader.decompress(reader.unconsumed_tail, 1)
    except zlib.error as error:
        raise _damaged() from error
    if len(content) != size or rest or not reader.eof or reader.unused_data:
        raise _damaged()
    return content


def _damaged() -> TargetError:
    return TargetError(
        "what is packed in the island is damaged", where="openvino", remedy="compile the model again"
    )

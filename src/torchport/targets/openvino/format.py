"""The layout of an island built for OpenVINO: what `build` writes and `load` reads.

The payload is the model's weights, its XML, and in packages the device's own compiled form; each starts at a
multiple of 64 bytes. The weights come first, because a compiled form without weights reads them from a file
at their offsets. The other two are compressed with zlib. The properties are:

- `format`: the format number, `FORMAT`;
- `weights_bytes`: where the weights end;
- `xml_at`, `xml_bytes`: offset and compressed length of the XML; `xml_size`: its uncompressed length;
- `compiled`, if there is a compiled form: `at`, `bytes` and `size`, as for the XML; `made_for`, what must
  match for it to be used; `seal`; see `compiled_form.py`;
- `copies`: output index → input index, for outputs that are an input, at most reshaped; the model lacks them;
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

FORMAT = 17
Bytes = numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]

# The highest compression ratio accepted: a small file must not take much memory.
_MOST_TIMES = 100


@dataclass(frozen=True, slots=True)
class Properties:
    """The properties that a run needs, checked."""

    copies: dict[int, int]
    checks: CallChecks

    def model_outputs(self, outputs: Sequence[TensorSpec]) -> list[TensorSpec]:
        """Return the specs of the model's outputs: the island's outputs that it computes, then its sums."""
        if len(self.copies) == len(outputs) and not self.checks.sums:
            return list(outputs)  # a model needs at least one; see `_take_copies` in `build.py`
        given = [spec for index, spec in enumerate(outputs) if index not in self.copies]
        return given + [TensorSpec((), "float32")] * len(self.checks.sums)


def read_properties(
    given: Mapping[str, object], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> Properties:
    """Read and check an island's properties.

    Raises:
        TargetError: a property is missing, has the wrong type, or names a tensor that does not exist.
    """
    copies = {}
    for output, source in read_by_place(given, "copies", len(outputs), "openvino"):
        if not is_whole(source) or not 0 <= source < len(inputs):
            raise refuse_property("openvino", "copies", source)
        given_one, made = inputs[source], outputs[output]
        is_open = -1 in (*given_one.shape, *made.shape)  # then each call finds out whether the counts match
        if given_one.dtype != made.dtype or not (is_open or given_one.elements == made.elements):
            raise refuse_property("openvino", "copies", source)
        copies[output] = source
    return Properties(copies, CallChecks(given, inputs, "openvino"))


def aligned(size: int) -> int:
    """Return the next multiple of 64: OpenVINO uses weights in place if they are aligned."""
    return (size + 63) // 64 * 64


def pack(content: bytes, *, smaller: bool = True) -> Bytes:
    """Pack bytes for a payload.

    Args:
        content: the bytes.
        smaller: whether to compress them; for weights that is slow and gains nothing.
    """
    packed = zlib.compress(content, 6 if smaller else 0)
    if len(content) > _MOST_TIMES * len(packed):  # `unpack` would refuse it
        packed = zlib.compress(content, 0)
    return numpy.frombuffer(packed, dtype=numpy.uint8)


def unpack(packed: Bytes, properties: Mapping[str, object], key: str, most: int | None = None) -> bytes:
    """Unpack bytes, allocating no more memory than the properties state, after checking that size.

    Args:
        packed: the packed bytes of the payload.
        properties: the properties that hold the unpacked size.
        key: the property with the unpacked size.
        most: the largest unpacked size allowed.

    Raises:
        TargetError: the content would be too large, or is damaged.
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
        "the island's packed data is damaged", where="openvino", remedy="compile the model again"
    )

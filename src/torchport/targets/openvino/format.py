"""The layout of an island built for OpenVINO: what `build` writes and `load` reads.

The payload is the model's weights, its XML, and in packages the device's own compiled form; each starts at a
multiple of 64 bytes. The weights come first: a compiled form that holds none finds them at their offsets in
a file. The properties are:

- `format`: the number below;
- `weights_bytes`: where the weights end;
- `xml_at`, `xml_bytes`: where the XML lies;
- `compiled`, if there is such a form: `at` and `bytes`, where it lies; `made_for`, what must be the same here
  for it to be used; see `compiled_form.py`;
- `copies`: which outputs are an input, reshaped at most, by their indices; the model lacks them;
- `input_ranges`, `finite_inputs`, `sums`: see `call_checks.py`;
- `output_sizes` and `guards`, if sizes are open: see `open_sizes.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchport.records import TensorSpec
from torchport.targets.artifact_properties import is_whole, read_by_place, refuse_property
from torchport.targets.call_checks import CallChecks

FORMAT = 8


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

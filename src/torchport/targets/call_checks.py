"""Per-call checks for engines that may lose a NaN: integers before the call, sums and NaN after it.

It reads these properties of an artefact:

- `input_ranges`: the bounds of integer inputs, by their indices;
- `finite_inputs`: the indices of inputs that must be finite; the other float inputs may be infinite;
- `sums`: the names of the numbers that the model returns after its outputs; see `watches.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch

from torchport.records import TensorSpec
from torchport.targets.artifact_properties import read_input_ranges, read_places, refuse_property
from torchport.targets.target import GaveNaN, OutOfRange

_SUMS = ("crossing", "inside")


class CallChecks:
    """The checks of one island.

    Args:
        properties: the artefact's properties, possibly untrusted.
        inputs: the specs of its inputs.
        target: the target's name, for error messages.

    Raises:
        TargetError: a property is missing, has the wrong type, or refers to an input that does not exist.
    """

    def __init__(self, properties: Mapping[str, object], inputs: Sequence[TensorSpec], target: str) -> None:
        self._ranges = read_input_ranges(properties, inputs, target)
        finite = read_places(properties, "finite_inputs", len(inputs), target)
        self._floats = [
            (index, index in finite) for index, spec in enumerate(inputs) if "float" in spec.dtype
        ]
        sums = properties.get("sums")
        if not isinstance(sums, list) or not all(name in _SUMS for name in sums):
            raise refuse_property(target, "sums", sums)
        self.sums: list[str] = sums

    def example(self, inputs: Sequence[TensorSpec]) -> list[torch.Tensor]:
        """Return random arguments that pass the check of integers: numbers around 0, and 0 and 1."""
        generator = torch.Generator().manual_seed(0)
        made = [_random(spec, generator) for spec in inputs]
        for index, low, high in self._ranges:
            made[index].clamp_(low, high)
        return made

    def before(self, arguments: Sequence[torch.Tensor]) -> None:
        """Reject integers that the device would truncate, or that index out of bounds.

        Raises:
            OutOfRange: the call must run with eager torch.
        """
        for index, low, high in self._ranges:
            if arguments[index].numel() == 0:
                continue
            values = arguments[index].numpy(force=True)
            if values.min() < low or values.max() > high:
                raise OutOfRange(f"an integer input holds values outside {low} … {high}")

    def after(self, kept: Sequence[torch.Tensor], results: list[torch.Tensor], sums: Sequence[float]) -> None:
        """Reject results in which a NaN may have been lost.

        Args:
            kept: the arguments.
            results: the results.
            sums: the numbers that the model returned after them.

        Raises:
            OutOfRange: the call must run with eager torch.
        """
        # In double precision, so that a total of finite sums is finite.
        if math.isfinite(sum(sums)):
            return
        odd = [name for name, total in zip(self.sums, sums, strict=True) if not math.isfinite(total)]
        for index, must_be_finite in self._floats:
            if kept[index].isnan().any() or (must_be_finite and kept[index].isinf().any()):
                raise OutOfRange(f"the float input {index} of the island is not finite")
        if "inside" in odd:
            raise OutOfRange("a value inside the model is not finite, or so large that others could overflow")
        if any(result.is_floating_point() and result.isnan().any() for result in results):
            raise GaveNaN(results)


def _random(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if dtype.is_floating_point:
        return torch.randn(spec.shape, generator=generator).to(dtype)
    return torch.randint(0, 2, spec.shape, generator=generator).to(dtype)

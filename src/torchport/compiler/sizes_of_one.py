"""Tracks for which sizes of 1 a program with open sizes is correct.

Torch silently assumes that an open size is not 1: a model that branches on it is captured as if it never
were. So the program is used for inputs with sizes of 1 only after the model, captured for exactly these
inputs, turned out to make the same calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram

from torchport.capture import CapturedModel, input_shapes, same_calls
from torchport.runtime.input_kind import InputKind
from torchport.runtime.shape_guards import holds
from torchport.structure import Flat


@dataclass(frozen=True, slots=True, eq=False)
class SizesOfOne:
    """The combinations of sizes of 1 for which a program is correct.

    Args:
        widest: the inputs that it takes if it is correct for all combinations.
        unproved: for each size that could be 1, the guard that it is not.
        program: the model captured with open sizes.
        proved: the combinations for which it is proved correct, as guards.
    """

    widest: InputKind
    unproved: Sequence[object]
    program: ExportedProgram
    proved: tuple[object, ...] = ()

    @property
    def kind(self) -> InputKind:
        """The inputs for which the program is proved correct."""
        if not self.unproved:
            return self.widest
        guard = ["or", *self.proved, ["and", *self.unproved]]
        return replace(self.widest, guards=(*self.widest.guards, guard))

    def could_be(self, flat: Flat) -> bool:
        """Whether the program could be correct for inputs for which that is not proved."""
        return self.widest.fits(flat)

    def proved_by(self, flat: Flat, captured: CapturedModel) -> SizesOfOne | None:
        """Return this with one more combination proved; None if the model makes other calls for it.

        Args:
            flat: inputs of that combination.
            captured: the model captured for exactly these inputs.
        """
        if not same_calls(self.program, captured.program, flat.leaves):
            return None
        shapes = [leaf.shape for leaf in flat.leaves]
        found = ["and", *[guard if holds(guard, shapes) else ["not", guard] for guard in self.unproved]]
        return replace(self, proved=(*self.proved, found))

    def unknown(self, leaves: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
        """Yield inputs for each combination that is not proved yet, made from the given ones."""
        places = [guard[1][1:] for guard in self.unproved]  # type: ignore[index]  # as `open_sizes.py` writes them
        for chosen in itertools.product((False, True), repeat=len(places)):
            made = list(leaves)
            for (leaf, dim), is_one in zip(places, chosen, strict=True):
                made = _with_one(self.program, made, leaf, dim) if is_one else made
            if any(chosen) and not self.kind.fits_leaves(made) and self.widest.fits_leaves(made):
                yield made


def _with_one(
    program: ExportedProgram, leaves: list[torch.Tensor], leaf: int, dim: int
) -> list[torch.Tensor]:
    """Return inputs with a size set to 1, and with it all others that are always equal to it."""
    shapes = input_shapes(program)
    made = []
    for tensor, sizes in zip(leaves, shapes, strict=True):
        for place, size in enumerate(sizes):
            if size == shapes[leaf][dim]:
                tensor = tensor.narrow(place, 0, 1)
        made.append(tensor.contiguous())
    return made

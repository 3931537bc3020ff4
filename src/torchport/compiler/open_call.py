"""A call of `generate` as one program for all numbers of tokens and slots, with one copy of the weights."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchport import capture
from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.open_sizes import why_not_open
from torchport.compiler.specialise import Specialised, Specialiser
from torchport.generation.call_sizes import CallSizes, FixedSizes, vary
from torchport.structure import Flat, flatten_call

# Most calls are steps of one token, but torch does not accept an example of size 1 for a dynamic size.
_EXAMPLE = 2
_MOST_TRIED = 1 << 26  # elements of a cache


class OpenCall(CompiledModel):
    """A compiled call that takes prompt pieces of any width, and steps.

    Another number of sequences is compiled for when it first occurs, again for all widths.

    Args:
        specialiser: compiles the call for given inputs.
        sizes: the limits on a call's tokens and on a cache's slots.
    """

    def __init__(self, specialiser: Specialiser, sizes: CallSizes) -> None:
        super().__init__(specialiser, (), {}, lazily=True)
        self._sizes = sizes

    def _make(
        self, flat: Flat, args: Sequence[object], kwargs: Mapping[str, object], current: list[Specialised]
    ) -> tuple[Specialised, list[Specialised]]:
        """Return a program for all widths, and the other programs to keep.

        Raises:
            FixedSizes: one program cannot serve all of them.
        """
        if not any(each.ones is not None and each.ones.could_be(flat) for each in current):
            made = self._build_for_all_sizes(args)
            if made.fits(flat):
                return made, current
            if made.ones is None or not made.ones.could_be(flat):
                raise FixedSizes("the program for all numbers of tokens does not take this one")
            current = [made, *current]
        # A step: torch assumes that an open size is not 1, so it has to be proved for 1.
        return super()._make(flat, args, kwargs, current)

    def _slots_tried(self, args: Sequence[Any]) -> int:
        """Return how many slots a program is tried with: the maximum, unless that takes too much memory."""
        of_one: int = sum(past[:, :, 0].numel() for past in (*args[4], *args[5]))
        return min(self._sizes.slots, max(self._sizes.least_slots, _MOST_TRIED // max(of_one, 1)))

    def _build_for_all_sizes(self, args: Sequence[Any]) -> Specialised:
        example, open_dims = vary(args, self._sizes, _EXAMPLE)
        module, name = self._specialiser.module, self._specialiser.name
        try:
            captured = capture.export(module, example, {}, name=name, dynamic_shapes=open_dims)
            made = self._specialiser.build_open(captured)
            # With the largest sizes: an island may depend on values only where they hold for all sizes.
            largest = vary(args, self._sizes, self._sizes.tokens, self._slots_tried(args))[0]
            widest = flatten_call(largest, {})
            with torch.no_grad():
                made.program.run(widest.leaves, widest.objects, made.guard.check)
            return made
        except subprocess.TimeoutExpired:
            raise  # the caller who set the limit should see it
        except Exception as error:  # if it is the model's fault, it is raised again
            raise FixedSizes(why_not_open(error)) from error

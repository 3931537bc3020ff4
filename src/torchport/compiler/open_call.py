"""A call of `generate` that is one program for all numbers of tokens and slots: its weights exist once."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchport import capture
from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.open_sizes import NotOpen
from torchport.compiler.specialise import Specialised, Specialiser
from torchport.errors import one_line
from torchport.generation.call_sizes import CallSizes, FixedSizes, vary
from torchport.structure import Flat, flatten_call

# Most calls are steps of one token, and torch takes no example of size 1 for one that varies.
_EXAMPLE = 2
_MOST_TRIED = 1 << 26  # elements of a cache


class OpenCall(CompiledModel):
    """A compiled call that takes pieces of a prompt of any width, and steps.

    Another number of sequences is compiled for when it comes, for all widths as well.

    Args:
        specialiser: compiles the call for inputs.
        sizes: how many tokens a call takes at most, and how many slots a cache has.
    """

    def __init__(self, specialiser: Specialiser, sizes: CallSizes) -> None:
        super().__init__(specialiser, (), {}, lazily=True)
        self._sizes = sizes

    def _make(
        self, flat: Flat, args: Sequence[object], kwargs: Mapping[str, object], current: list[Specialised]
    ) -> tuple[Specialised, list[Specialised]]:
        """Return a program for all widths, and the others.

        Raises:
            FixedSizes: one program cannot be for all of them.
        """
        if not any(each.ones is not None and each.ones.could_be(flat) for each in current):
            made = self._build_for_all_sizes(args)
            if made.fits(flat):
                return made, current
            if made.ones is None or not made.ones.could_be(flat):
                raise FixedSizes("what was built for all numbers of tokens is not for this one")
            current = [made, *current]
        # A step: torch takes for granted that an open size is not 1, so that it is to be proved.
        return super()._make(flat, args, kwargs, current)

    def _slots_tried(self, args: Sequence[Any]) -> int:
        """Return how many slots a program is tried with: as many as there may be, unless they fill memory."""
        of_one: int = sum(past[:, :, 0].numel() for past in (*args[-2], *args[-1]))
        return min(self._sizes.slots, max(self._sizes.least_slots, _MOST_TRIED // max(of_one, 1)))

    def _build_for_all_sizes(self, args: Sequence[Any]) -> Specialised:
        example, open_dims = vary(args, self._sizes, _EXAMPLE)
        module, name = self._specialiser.module, self._specialiser.name
        try:
            captured = capture.export(module, example, {}, name=name, dynamic_shapes=open_dims)
            made = self._specialiser.build_open(captured)
            # An island that looks values up may take those alone that are right for every size.
            largest = vary(args, self._sizes, self._sizes.tokens, self._slots_tried(args))[0]
            widest = flatten_call(largest, {})
            with torch.no_grad():
                made.program.run(widest.leaves, widest.objects, made.guard.check)
            return made
        except subprocess.TimeoutExpired:
            raise  # who set a limit wants to know
        except Exception as error:  # if it is the model's fault, it is raised again
            raise FixedSizes(str(error) if isinstance(error, NotOpen) else one_line(error)) from error

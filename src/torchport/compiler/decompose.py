"""Applies decompositions to an exported program: in pieces if that is the same, else as torch does.

`decompose_pieces.py` says which programs are taken apart in pieces. For the others,
`ExportedProgram.run_decompositions` collects all composite ops of all libraries first, to find those
that are to be kept. That takes longer than decomposing a small model. Which ones are kept is known
here, so its inner step is called with just those.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

import torch
from torch.export import ExportedProgram
from torch.fx.node import has_side_effect

from torchport.compiler.decompose_pieces import decompose_pieces
from torchport.compiler.in_place_writes import NotInPieces
from torchport.targets.target import Decompositions
from torchport.torch_private import (
    OpOverload,
    decompose_exported_program,
    preserve_composite,
    without_fake_mode,
)

_log = logging.getLogger(__name__)

# It gives nothing and raises for a singular matrix. torch 2.11 would drop it as an op that nobody uses.
has_side_effect(torch.ops.aten._linalg_check_errors.default)


def decompose(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    """Return the program in terms of ops that are not decomposed.

    Args:
        program: the program.
        decompositions: the ops that are taken apart, with how.
        kept: the composite ops that stay whole; the others torch takes apart by itself.
    """
    return _undisturbed(program, decompositions, kept)  # type: ignore[no-any-return]  # torch's private names have no types


@without_fake_mode  # type: ignore[untyped-decorator]  # as above
def _undisturbed(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    try:
        return decompose_pieces(program, decompositions, kept)
    except NotInPieces as reason:
        _log.debug("torch takes the whole program apart: %s", reason)
    return decompose_exported_program(  # type: ignore[no-any-return]  # as above
        program,
        cia_to_decomp=dict.fromkeys(kept, preserve_composite),
        python_decomp_table=dict(decompositions),  # type: ignore[arg-type]  # invariant keys
        joint_loss_index=None,
        decompose_custom_triton_ops=False,
    )

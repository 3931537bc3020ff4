"""Applies decompositions to an exported program: in pieces if that gives the same result, else as torch does.

`decompose_pieces.py` decides which programs are decomposed in pieces. For the others,
`ExportedProgram.run_decompositions` first collects all composite ops of all libraries to find those to keep,
which takes longer than decomposing a small model. Here the kept ones are known, so its inner step is called
with just those.
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

# It has no result and raises for a singular matrix. torch 2.11 would remove it as dead code.
has_side_effect(torch.ops.aten._linalg_check_errors.default)


def decompose(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    """Return the program with its ops decomposed.

    Args:
        program: the program.
        decompositions: the ops to decompose, with their decompositions.
        kept: the composite ops to keep; torch decomposes the others.
    """
    return _decompose(program, decompositions, kept)  # type: ignore[no-any-return]  # torch's private names have no types


@without_fake_mode  # type: ignore[untyped-decorator]  # as above
def _decompose(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    try:
        return decompose_pieces(program, decompositions, kept)
    except NotInPieces as reason:
        _log.debug("torch decomposes the whole program: %s", reason)
    return decompose_exported_program(  # type: ignore[no-any-return]  # as above
        program,
        cia_to_decomp=dict.fromkeys(kept, preserve_composite),
        python_decomp_table=dict(decompositions),  # type: ignore[arg-type]  # invariant keys
        joint_loss_index=None,
        decompose_custom_triton_ops=False,
    )

"""Applies decompositions to an exported program, without looking at every op that torch has.

`ExportedProgram.run_decompositions` collects all composite ops of all libraries first, to find those
that are to be kept. That takes longer than decomposing a small model. Which ones are kept is known
here, so its inner step is called with just those.
"""

from __future__ import annotations

from collections.abc import Collection

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.export._trace import _disable_prexisiting_fake_mode  # type: ignore[attr-defined]
from torch.export.exported_program import (  # type: ignore[attr-defined]
    _decompose_exported_program,
    _special_op_to_preserve_cia,
)

from torchport.targets.target import Decompositions


def decompose(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    """Return the program in terms of ops that are not decomposed.

    Args:
        program: the program.
        decompositions: the ops that are taken apart, with how.
        kept: the composite ops that stay whole; the others torch takes apart by itself.
    """
    return _undisturbed(program, decompositions, kept)  # type: ignore[no-any-return]


@_disable_prexisiting_fake_mode  # type: ignore[untyped-decorator]
def _undisturbed(
    program: ExportedProgram, decompositions: Decompositions, kept: Collection[OpOverload]
) -> ExportedProgram:
    return _decompose_exported_program(  # type: ignore[no-any-return]
        program,
        cia_to_decomp=dict.fromkeys(kept, _special_op_to_preserve_cia),
        python_decomp_table=dict(decompositions),  # type: ignore[arg-type]  # invariant keys
        joint_loss_index=None,
        decompose_custom_triton_ops=False,
    )

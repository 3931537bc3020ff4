"""Decomposes programs in both ways."""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram

from torchport.capture import quiet_torch
from torchport.compiler.decompose_pieces import decompose_pieces
from torchport.targets import find
from torchport.torch_private import (
    decompose_exported_program,
    preserve_composite,
    tree_leaves,
    without_fake_mode,
)


@without_fake_mode
def in_pieces(program: ExportedProgram, target: str = "openvino") -> ExportedProgram:
    """Return a program decomposed in pieces."""
    known = find(target)
    with quiet_torch(), torch.no_grad():
        return decompose_pieces(program, known.decompositions(), known.kept_composites())


@without_fake_mode
def as_a_whole(program: ExportedProgram, target: str = "openvino") -> ExportedProgram:
    """Return a program as torch decomposes it."""
    known = find(target)
    with quiet_torch(), torch.no_grad():
        return decompose_exported_program(
            program,
            cia_to_decomp=dict.fromkeys(known.kept_composites(), preserve_composite),
            python_decomp_table=dict(known.decompositions()),
            joint_loss_index=None,
            decompose_custom_triton_ops=False,
        )


class _Place:
    def __init__(self, place: object) -> None:
        self._place = place

    def __repr__(self) -> str:
        return f"%{self._place}"


def described(program: ExportedProgram) -> list[tuple[str, str, str, list[str]]]:
    """Describe each node: its target, its inputs, and the shapes and strides of its results."""
    inputs = {spec.arg.name: spec.target or spec.arg.name for spec in program.graph_signature.input_specs}
    places: dict[fx.Node, _Place] = {}
    rows = []
    for node in program.graph.nodes:
        places[node] = _Place(inputs[node.name] if node.op == "placeholder" else len(places))
        if node.op == "placeholder" or node.target is torch.ops.aten._assert_tensor_metadata.default:
            continue
        arguments = fx.map_arg((node.args, dict(node.kwargs)), places.__getitem__)
        values = [] if node.op == "output" else tree_leaves(node.meta.get("val"))
        rows.append((node.op, str(node.target), repr(arguments), list(map(_form, values))))
    return rows


def _form(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"

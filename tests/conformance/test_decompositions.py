"""Real architectures: decomposing in pieces gives the same ops as torch decomposing the whole program."""

from __future__ import annotations

from collections import Counter

import pytest
from torch.export import ExportedProgram

from compiler.decompositions import as_a_whole, described, in_pieces
from conformance.architectures import TIMM, TORCHVISION, TRANSFORMERS, marked
from torchport import capture, zoo
from torchport.compiler.in_place_writes import NotInPieces
from torchport.compiler.normalise import remove_no_ops
from torchport.errors import CaptureError

ALL = [
    *marked("torchvision", TORCHVISION, 0),
    *marked("timm", TIMM, 0),
    *marked("hf-small", TRANSFORMERS, 0),
]
# torch records a write to a view as a write to its base, even if nothing reads the base.
_VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "permute.default", "transpose.int", "slice.Tensor",
        "slice_scatter.default", "select.int", "select_scatter.default", "unsqueeze.default",
        "squeeze.dim", "expand.default", "as_strided.default", "as_strided_scatter.default", "split.Tensor",
        "split_with_sizes.default", "unbind.int",
    )
)  # fmt: skip


def _calls(program: ExportedProgram) -> Counter[object]:
    """Return the calls that compute something, with the forms of their results, ignoring order."""
    remove_no_ops(program.graph_module)
    rows = [(name, tuple(forms)) for kind, name, _, forms in described(program) if kind == "call_function"]
    return Counter(row for row in rows if row[0] not in _VIEWS and "getitem" not in row[0])


@pytest.mark.parametrize("target", ["openvino", "ttnn"])
@pytest.mark.parametrize("name", ALL)
def test_it_is_what_torch_makes_of_the_whole(name: str, target: str) -> None:
    model = zoo.load(name, weights=False)
    try:
        program = capture.export(model.module, model.args, model.kwargs, name=name).program
    except CaptureError:
        return  # its path depends on values
    try:
        pieces = in_pieces(program, target)
    except NotInPieces:
        return  # left to torch
    assert _calls(pieces) == _calls(as_a_whole(program, target))

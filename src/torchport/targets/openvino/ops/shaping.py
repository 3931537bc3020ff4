"""Ops that move elements without changing them."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import checked, shape, takes, value_of

takes("view.default _unsafe_view.default permute.default unsqueeze.default expand.default", "fib")
takes("squeeze.dim squeeze.dims transpose.int", "fib")
takes("slice.Tensor select.int cat.default flip.default", "fib")
takes("split.Tensor split_with_sizes.default unbind.int", "fi")
takes("constant_pad_nd.default", "fi")
takes("slice_scatter.default select_scatter.default", "fi")
takes("pixel_shuffle.default pixel_unshuffle.default", "f")


@checked("repeat.default", "fib")
def _repeat(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0:
        return shape("a single number is repeated")
    return None

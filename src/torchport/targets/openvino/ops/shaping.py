"""Ops that move elements without changing them."""

from __future__ import annotations

from torchport.targets.openvino.rules import takes

takes("view.default _unsafe_view.default permute.default unsqueeze.default expand.default", "fib")
takes("squeeze.dim squeeze.dims transpose.int", "fib")
takes("slice.Tensor select.int cat.default repeat.default flip.default", "fib")
takes("split.Tensor split_with_sizes.default unbind.int", "fi")
takes("constant_pad_nd.default", "fi")
takes("pixel_shuffle.default pixel_unshuffle.default", "f")

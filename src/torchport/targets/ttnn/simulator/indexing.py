"""Simulated look-ups. That indices are in bounds is proved, or checked before a program runs."""

from __future__ import annotations

import torch

from torchport.targets.ttnn.refusal import refuse
from torchport.targets.ttnn.simulator.movement import LAYOUTS
from torchport.targets.ttnn.simulator.registry import kernel
from torchport.targets.ttnn.simulator.tensors import Held, need_dtype, need_tile


@kernel("embedding")
def embedding(indices: Held, table: Held, *, layout: str) -> Held:
    """Rows of a table."""
    need_dtype(indices, "uint32")
    need_dtype(table, "bfloat16")
    if indices.layout != "row_major" or table.layout != "row_major":
        refuse("argument", "a table and its indices lie in rows")
    if indices.data.dim() not in (1, 2) or table.data.dim() != 2:
        refuse("shape", "indices of other than one or two dimensions, or a table of other than two")
    data = torch.nn.functional.embedding(indices.data, table.data)
    return Held(data, table.dtype, LAYOUTS[layout])


@kernel("gather")
def gather(tensor: Held, dim: int, *, index: Held) -> Held:
    """Elements along a dimension, by an index for each."""
    need_tile(tensor, index)
    need_dtype(tensor, "bfloat16", "float32", "int32")
    need_dtype(index, "uint32")
    if tensor.data.dim() != index.data.dim() or tensor.data.dim() == 0:
        refuse("shape", "tensor and index differ in their dimensions")
    for place, (size, given) in enumerate(zip(tensor.shape, index.shape, strict=True)):
        if place != dim % tensor.data.dim() and given > size:
            refuse("shape", "the index is larger than what it looks into")
    return Held(torch.gather(tensor.data, dim, index.data), tensor.dtype, tensor.layout)

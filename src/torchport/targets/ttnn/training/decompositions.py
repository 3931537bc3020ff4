"""The table of ops in training graphs that are decomposed, and their decompositions."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from torchport.targets.ttnn.training import attention, convolutions, norms, poolings
from torchport.torch_private import OpOverload, decomposition_table

aten = torch.ops.aten


@functools.cache
def training_decompositions() -> dict[OpOverload, Callable[..., object]]:
    """Return the decompositions for training graphs, in addition to those for any graph."""
    table = decomposition_table
    own: dict[OpOverload, Callable[..., object]] = {
        aten.convolution.default: convolutions.convolution,
        aten.convolution_backward.default: convolutions.convolution_backward,
        aten.max_pool2d_with_indices.default: poolings.max_pool,
        aten.max_pool2d_with_indices_backward.default: poolings.max_pool_backward,
        aten.avg_pool2d.default: poolings.average_pool,
        aten.avg_pool2d_backward.default: poolings.average_pool_backward,
        aten._native_batch_norm_legit_functional.default: norms.batch_norm,
        aten._native_batch_norm_legit.no_stats: norms.batch_norm_without_statistics,
        aten.native_batch_norm_backward.default: norms.batch_norm_backward,
        aten.native_group_norm.default: norms.group_norm,
        aten.var_mean.correction: norms.variance_and_mean,
        aten._scaled_dot_product_flash_attention_for_cpu.default: attention.attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention.attention_backward,
    }
    theirs = [aten._native_batch_norm_legit.default, aten.native_layer_norm.default]
    return own | {op: table[op] for op in theirs if op in table}

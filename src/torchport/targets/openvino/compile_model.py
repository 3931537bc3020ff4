"""Compiles a model for OpenVINO's fastest kernels that are correct."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from torchport.targets.mapped_payload import release_pages
from torchport.targets.openvino.arm_channel_scales import are_scales_collapsed, separate_channel_scales
from torchport.targets.openvino.arm_reductions import apply_arm_workarounds
from torchport.targets.openvino.compiled_form import WITHOUT_WEIGHTS, can_import
from torchport.targets.openvino.compressed_weights import compute_in_float32, computes_halves
from torchport.targets.openvino.decomposed_attention import write_attention
from torchport.targets.openvino.float16_products import KEEP_TENSOR_PRECISION, write_half_products
from torchport.targets.openvino.float32_weights import widen_weights
from torchport.targets.openvino.format import Bytes
from torchport.targets.openvino.fused_kernels import (
    WITHOUT_MERGED_KERNELS,
    has_crashing_attention,
    has_wrong_products,
    is_slower_merged,
    separate_negative_scales,
)
from torchport.targets.openvino.inner_scales import separate_inner_scales
from torchport.targets.openvino.library import core
from torchport.targets.openvino.options import PRECISIONS, OpenVinoOptions
from torchport.targets.openvino.request import Request
from torchport.targets.openvino.stateful_caches import FULL_PRECISION_CACHE, HeldCaches, hold_caches

_PRECISION = "INFERENCE_PRECISION_HINT"


@dataclass(frozen=True)
class Compiled:
    """A compiled model and how it was compiled.

    Args:
        model: OpenVINO's compiled model.
        imported: whether it was imported from a compiled form.
        may_export: whether its compiled form may be saved: not if it needs settings of its own.
        has_half: whether it has products in float16, and an output that shows whether any overflowed.
        weights: the memory of weights that were converted to another dtype.
        held: the KV caches that it holds as states between calls.
        idle: its infer requests that no thread is using.
    """

    model: Any
    imported: bool = False
    may_export: bool = True
    has_half: bool = False
    weights: Bytes | None = None
    held: HeldCaches | None = None
    idle: collections.deque[Request] = field(default_factory=collections.deque)


def compile_model(model: Any, sums: int, options: OpenVinoOptions) -> Compiled:
    """Compile a model whose last outputs are `sums` sums.

    Its KV caches become states where OpenVINO's attention kernel then reads them.
    """
    apply_arm_workarounds(model)
    held = _hold_caches(model, sums, options)
    if held is not None:
        compiled = _compile_rewritten(held.model, options, FULL_PRECISION_CACHE)
        if held.uses_attention_kernel(compiled.model):
            return replace(compiled, may_export=False, held=held)
    return _compile_rewritten(model, options)


def compile_config(options: OpenVinoOptions) -> dict[str, object]:
    """Return the options as OpenVINO properties."""
    config: dict[str, object] = {
        "PERFORMANCE_HINT": "LATENCY",
        # By default, OpenVINO computes in float16 or bfloat16 wherever the processor can.
        _PRECISION: PRECISIONS[options.precision],
    }
    if can_import(options.device):
        config.update(WITHOUT_WEIGHTS)
    if options.device == "CPU":
        # Pinned threads wait for other threads on their core, such as the caller's own.
        config["ENABLE_CPU_PINNING"] = False
        # By default, OpenVINO quantizes the activations of products with 8-bit weights to 8 bits, too.
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    if options.threads:
        config["INFERENCE_NUM_THREADS"] = options.threads
    config.update(options.config)
    return config


def _is_float32(options: OpenVinoOptions) -> bool:
    return options.device == "CPU" and compile_config(options)[_PRECISION] == PRECISIONS["float32"]


def _hold_caches(model: Any, sums: int, options: OpenVinoOptions) -> HeldCaches | None:
    """Return a model that holds its KV caches as states, if it has any and no option sets their precision."""
    if not _is_float32(options) or options.config.keys() & FULL_PRECISION_CACHE.keys():
        return None
    return hold_caches(model, sums)


def _compile_rewritten(
    model: Any, options: OpenVinoOptions, extra: Mapping[str, object] = MappingProxyType({})
) -> Compiled:
    """Rewrite a model for the fastest correct kernels, and compile it."""
    config = exported = {**extra, **compile_config(options)}
    if options.device == "CPU":
        write_attention(model)
        separate_inner_scales(model)
    if options.device == "CPU" and (is_slower_merged(model) or has_wrong_products(model)):
        config = exported = {**WITHOUT_MERGED_KERNELS, **config}  # a compiled form keeps this setting
    elif options.device == "CPU" and has_crashing_attention(model):
        config = {**WITHOUT_MERGED_KERNELS, **config}
    if options.device == "CPU" and WITHOUT_MERGED_KERNELS.items() <= config.items():
        separate_negative_scales(model)
    if options.device == "CPU" and are_scales_collapsed(config):
        separate_channel_scales(model)
    kept = write_half_products(model) if _is_half_wanted(options) else None
    has_half = kept is not None
    if has_half:
        config = {name: value for name, value in config.items() if name != _PRECISION} | KEEP_TENSOR_PRECISION
    elif _is_float32(options):
        written = None if computes_halves() else compute_in_float32(model)
        if written is not None:
            model, exported = written, {}  # a compiled form would hold weights in float32
        else:
            kept = widen_weights(model)
    compiled = core().compile_model(model, options.device, config)
    if kept is not None:
        release_pages(kept)
    may_export = kept is None and config == exported
    return Compiled(compiled, may_export=may_export, has_half=has_half, weights=kept)


def _is_half_wanted(options: OpenVinoOptions) -> bool:
    """Whether to compute products in float16; OpenVINO's own precision properties take precedence if set."""
    chosen = options.config.keys() & {_PRECISION, *KEEP_TENSOR_PRECISION}
    return options.precision == "float16" and options.device == "CPU" and not chosen

"""Computes the cost of generation, for a prompt and for a step with a KV cache, on meta tensors."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from torchport.analysis import analyze
from torchport.errors import CaptureError, one_line
from torchport.generation.generating import can_generate
from torchport.records import GenerationCost, PhaseCost


def analyze_generation(
    model: nn.Module,
    *,
    length: int = 2048,
    batch: int = 1,
    peak_flops: float | None = None,
    bandwidth: float | None = None,
    name: str = "",
) -> GenerationCost:
    """Compute the cost of a prompt, of one step after it, and of the KV cache in between.

    Like `torchport.analyze`, it needs neither weights nor memory: a model on the meta device will do.

    Args:
        model: a transformers causal language model.
        length: how many tokens the prompt has.
        batch: how many sequences there are.
        peak_flops, bandwidth: a device's peak numbers, for a roofline estimate of both calls.
        name: the model's name in the record.

    Raises:
        CaptureError: the model does not generate, has an encoder, keeps more than keys and values, or does
            not support that many tokens.
        RecordError: the device's numbers are not positive.

    Example:
        >>> found = analyze_generation(zoo.load("hf:gpt2", weights=False, device="meta").module, length=1000)
        >>> found.cache_bytes == 1000 * found.cache_bytes_per_token
        True
    """
    where = name or type(model).__name__
    given: Any = model
    if not can_generate(model) or given.config.is_encoder_decoder:
        what = "has an encoder" if can_generate(model) else "does not generate"
        raise CaptureError(
            f"the model {what}; generation cost is only computed for causal language models of transformers",
            where=where,
            remedy="use torchport.analyze for the cost of a single run",
        )
    if length < 1 or batch < 1:
        raise CaptureError("length and batch must be at least 1", where=where)
    shapes = cache_shapes(given, where)
    filled = _filled(given, shapes, batch, length)
    costs = []
    for tokens, cache in ((length, None), (1, filled)):
        ids = torch.zeros(batch, tokens, dtype=torch.long, device=given.device)
        wanted = {"input_ids": ids, "past_key_values": cache, "use_cache": True}
        if "logits_to_keep" in inspect.signature(given.forward).parameters:
            wanted["logits_to_keep"] = 1  # as in transformers' own loop
        cost = analyze(given, (), wanted, name=where).cost
        estimate = cost.roofline(peak_flops, bandwidth) if peak_flops and bandwidth else None
        costs.append((cost, PhaseCost.of(cost, estimate)))
    longer = _filled(given, shapes, 1, length + 1)
    return GenerationCost(
        model=where,
        batch=batch,
        length=length,
        parameters=costs[0][0].parameters,
        parameter_bytes=costs[0][0].parameter_bytes,
        cache_dtype=str(given.dtype).removeprefix("torch."),
        cache_layers=len(shapes),
        cache_bytes=_bytes(filled),
        cache_bytes_per_token=_bytes(longer) - _bytes(filled) // batch,
        prefill=costs[0][1],
        step=costs[1][1],
    )


def cache_shapes(model: Any, where: str) -> dict[int, tuple[torch.Size, torch.Size]]:
    """Return the shapes of one token's cached keys and values, by layer."""
    from transformers.cache_utils import DynamicCache

    from torchport.generation.cache_form import what_else_is_kept

    config = model.config.get_text_config(decoder=True)
    cache = DynamicCache(config=config)
    one = torch.zeros(1, 1, dtype=torch.long, device="meta")
    try:
        with torch.device("meta"), torch.no_grad():
            without_values = type(model)(model.config).eval()
            without_values(input_ids=one, past_key_values=cache, use_cache=True)
    except Exception as error:  # a model may raise anything
        raise CaptureError(
            f"the model does not run on a token on the meta device: {one_line(error)}", where=where
        ) from error
    problem = what_else_is_kept(cache)
    if problem:
        raise CaptureError(problem, where=where)
    return {
        place: (layer.keys.shape, layer.values.shape)
        for place, layer in enumerate(cache.layers)
        if layer.is_initialized
    }


def _filled(model: Any, shapes: dict[int, tuple[torch.Size, torch.Size]], batch: int, length: int) -> Any:
    """Return a cache filled with `length` tokens, on the meta device."""
    from transformers.cache_utils import DynamicCache

    cache = DynamicCache(config=model.config.get_text_config(decoder=True))
    for place, pair in shapes.items():
        made = [
            torch.empty(batch, shape[1], length, shape[3], dtype=model.dtype, device="meta") for shape in pair
        ]
        cache.update(*made, place)
    return cache


def _bytes(cache: Any) -> int:
    layers = [layer for layer in cache.layers if layer.is_initialized]
    return sum(int(layer.keys.nbytes + layer.values.nbytes) for layer in layers)

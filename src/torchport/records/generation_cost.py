"""The cost of generating text: of the prompt, of a step with a KV cache, and of the cache itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.cost import Cost, Roofline
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class PhaseCost(Record):
    """The cost of one call of a model, in the terms of `Cost`.

    Args:
        flops, vector_flops: the operations, counted as in `Cost`.
        bytes_read, bytes_written: the bytes that all kernels read and write.
        arithmetic_intensity: operations of both kinds per byte moved.
        activation_bytes: the peak bytes of live tensors that the call allocates.
        roofline: the time estimate for a device, if one was given.
        uncounted: ops of unknown cost, with how often each runs.
    """

    flops: int
    vector_flops: int
    bytes_read: int
    bytes_written: int
    arithmetic_intensity: float
    activation_bytes: int
    roofline: Roofline | None
    uncounted: dict[str, int]

    @classmethod
    def of(cls, cost: Cost, roofline: Roofline | None) -> PhaseCost:
        """Return a call's totals, without the costs of its parts."""
        return cls(
            cost.flops,
            cost.vector_flops,
            cost.bytes_read,
            cost.bytes_written,
            cost.arithmetic_intensity,
            cost.activation_bytes,
            roofline,
            cost.uncounted,
        )


@dataclass(frozen=True, slots=True)
class GenerationCost(Record):
    """The cost of generating text with a model.

    Args:
        model: the model's name.
        batch: the number of sequences.
        length: the number of tokens in a prompt, and so in the cache at the step.
        parameters, parameter_bytes: the parameters; tied ones count once.
        cache_dtype: the dtype of the cached keys and values.
        cache_layers: the number of layers with a KV cache.
        cache_bytes: the size of the cache with `length` tokens of every sequence.
        cache_bytes_per_token: how much each further token of one sequence adds; layers whose sliding window
            is full add nothing.
        prefill: the cost of processing the whole prompt in one call.
        step: the cost of the next token of each sequence.
    """

    schema: ClassVar[str] = "torchport.generation_cost/1"

    model: str
    batch: int
    length: int
    parameters: int
    parameter_bytes: int
    cache_dtype: str
    cache_layers: int
    cache_bytes: int
    cache_bytes_per_token: int
    prefill: PhaseCost
    step: PhaseCost

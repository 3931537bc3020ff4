"""What it costs to generate: a prompt, a step with a cache, and the cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.cost import Cost, Roofline
from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class PhaseCost(Record):
    """What one call of a model costs; the numbers are those of `Cost`.

    Args:
        flops, vector_flops: the operations.
        bytes_read, bytes_written: by all kernels.
        arithmetic_intensity: all operations for each byte moved.
        activation_bytes: the most bytes of tensors that live at a time, of those that the call makes.
        roofline: how long a device would take, if one was named.
        uncounted: ops of unknown cost, with how often they run.
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
        """Return what a call costs, without its parts."""
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
    """What it costs to generate with a model.

    Args:
        model: the model's name.
        batch: how many sequences there are.
        length: how many tokens a prompt has, and how many are in the cache when the step comes.
        parameters, parameter_bytes: tied ones once.
        cache_dtype: of the keys and values.
        cache_layers: how many layers keep them.
        cache_bytes: of the cache with so many tokens of all sequences.
        cache_bytes_per_token: how much each further token of one sequence adds; layers whose window is full
            add none.
        prefill: the prompt as a whole.
        step: one token after it, for each sequence.
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

"""How a compiled model is called to generate: its cache's size, and the inputs that accompany the tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class MaskSpec(Record):
    """An attention mask that a call takes.

    Args:
        dims: 4 for a mask of each token over all cache slots, 2 for a padding mask, 0 for no mask.
        dtype: torch's name for its dtype.
        window: how many tokens each token attends to, itself included; 0 for all preceding ones.
    """

    dims: int
    dtype: str
    window: int = 0


STATE_KINDS = ("conv", "recurrent")


@dataclass(frozen=True, slots=True)
class StateForm(Record):
    """A recurrent state of a layer: of one size for any number of tokens.

    Args:
        layer: the layer's index.
        kind: one of `STATE_KINDS`: of a short convolution, or of linear attention.
        index: which of the layer's states of that kind it is.
        shape: its shape for one sequence.
        dtype: torch's name for its dtype.
    """

    layer: int
    kind: str
    index: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class GenerationForm(Record):
    """How a compiled model is called to generate.

    Args:
        max_length: the most tokens that a sequence may have: the largest number of cache slots.
        width: how many tokens of a prompt one call takes.
        layers: for each layer that keeps keys and values, the number of heads and their widths.
        dtype: the dtype of the cache.
        keeps_logits: whether a call returns the logits of only one token.
        masks: the attention masks by name; a single mask has the empty name.
        positions: whether a call takes the tokens' positions.
        library_only: why only the library's own loop can call it; empty if any caller can.
        open_width: whether a call also takes fewer prompt tokens; if not, they are padded.
        open_slots: whether it also takes caches with fewer slots.
        states: the recurrent states that the model keeps besides keys and values.
        attention: the indices of the layers that keep keys and values, if some layers keep states.
    """

    max_length: int
    width: int
    layers: tuple[tuple[int, int, int], ...]
    dtype: str
    keeps_logits: bool
    masks: dict[str, MaskSpec] = field(default_factory=dict)
    positions: bool = False
    library_only: str = ""
    open_width: bool = False
    open_slots: bool = False
    states: tuple[StateForm, ...] = ()
    attention: tuple[int, ...] = ()

    def cache_elements(self, length: int = 0) -> int:
        """Return the number of elements in one sequence's cache of `length` (or `max_length`) tokens."""
        of_one = sum(heads * (keys + values) for heads, keys, values in self.layers)
        return of_one * (length or self.max_length) + sum(math.prod(state.shape) for state in self.states)

"""How a compiled model is called to generate: the size of its cache, and what goes with tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from torchport.records.record import Record


@dataclass(frozen=True, slots=True)
class MaskSpec(Record):
    """A mask that a call takes.

    Args:
        dims: 4: over all slots for each token; 2: one row of tokens that are there; 0: it was not asked for.
        dtype: torch's name of its dtype.
        window: how many tokens each one sees, itself included; 0 if all before it.
    """

    dims: int
    dtype: str
    window: int = 0


@dataclass(frozen=True, slots=True)
class GenerationForm(Record):
    """How a compiled model is called to generate.

    Args:
        max_length: how many tokens a sequence may have: the slots of the cache, at most.
        width: how many tokens of a prompt one call takes.
        layers: the number of heads, and the widths of keys and of values, by layer of the cache.
        dtype: of the cache.
        keeps_logits: whether a call gives the logits of one token only.
        masks: what is known of masks, by their names; the name of one alone is empty.
        positions: whether a call takes the tokens' positions.
        library_only: why only the library's own loop can call it; empty if anybody can.
        open_width: whether a call takes fewer tokens of a prompt as well; else they are padded.
        open_slots: whether it takes caches of fewer slots as well.
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

    def cache_elements(self, length: int = 0) -> int:
        """Return how many numbers the cache of one sequence holds; with a length, those of so many tokens."""
        return sum(heads * (keys + values) for heads, keys, values in self.layers) * (
            length or self.max_length
        )

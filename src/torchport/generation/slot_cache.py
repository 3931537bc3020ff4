"""The KV cache that a caller holds from call to call: buffers with one slot for each token.

A compiled call reads it; the model sees a `PastCache`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache, StaticCache

from torchport.errors import RuntimeRefusal
from torchport.generation.pieces import SlotNumbers
from torchport.generation.recurrent_states import Layout, StateLayer, attention_layers, states_in
from torchport.generation.slot_stacks import SlotStacks
from torchport.records import StateForm


class CrossCache(EncoderDecoderCache):
    """A cache of the decoder's own past, and of its cross-attention keys and values.

    Args:
        own: the cache of the decoder's self-attention, of any of these classes.
        keys, values: of the cross-attention, by layer; empty before they are known.
    """

    def __init__(
        self, own: Cache, keys: Sequence[torch.Tensor] = (), values: Sequence[torch.Tensor] = ()
    ) -> None:
        # No super().__init__(): it would read values of tensors, which are not known in a graph.
        self.self_attention_cache = own
        self.cross_attention_cache = _CrossAttention(keys, values)
        self.is_updated = dict.fromkeys(range(len(keys)), True)

    @property
    def cross(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The keys and the values of the cross-attention, by layer."""
        layers = self.cross_attention_cache.layers
        return [layer.keys for layer in layers], [layer.values for layer in layers]

    def share_cross_attention(self, other: CrossCache) -> None:
        """Take over another cache's cross-attention keys and values."""
        self.cross_attention_cache, self.is_updated = other.cross_attention_cache, other.is_updated

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Continue sequence `i` from sequence `beam_idx[i]`, which attends to the same encoder output."""
        self.self_attention_cache.reorder_cache(beam_idx)

    def check_dynamic_cache(self, method: str) -> None:
        """Allow whatever transformers allows for its dynamic caches."""


class _CrossAttention(DynamicCache):
    """The keys and values of the cross-attention."""

    def __init__(self, keys: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
        super().__init__()
        for layer, pair in enumerate(zip(keys, values, strict=True)):
            self.update(*pair, layer)


class _SlotLayer(CacheLayerMixin):
    """A layer's buffers."""

    is_compileable = True  # so that transformers prepares masks for all slots
    is_croppable = True
    is_sliding = False

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, numbers: SlotNumbers) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.numbers = numbers
        self.length = 0
        self.is_initialized = True

    @property
    def batch_size(self) -> int:
        """How many sequences there are."""
        return int(self.keys.shape[0])

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the buffers exist already."""

    def update(self, *args: object, **kwargs: object) -> tuple[torch.Tensor, torch.Tensor]:
        """Refuse: a model is called with a `PastCache`."""
        raise NotImplementedError("only a compiled model writes this cache")

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of slots that the next call's mask covers, and the first one."""
        return max(self.keys.shape[2], self.numbers.for_tokens(self.length + query_length)), 0

    def get_seq_length(self) -> int:
        """Return how many slots are filled."""
        return self.length

    def get_max_length(self) -> int:
        """Return the maximum number of slots."""
        return self.numbers.most

    def reset(self) -> None:
        """Forget everything."""
        self.length = 0

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; transformers passes their number negated.

        Raises:
            ValueError: the number is positive, which used to mean the number of tokens to keep.
        """
        if tokens_to_remove > 0:
            raise ValueError("crop takes the number of tokens to remove as a negative number")
        self.length = max(self.length + tokens_to_remove, 0)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Continue sequence `i` from sequence `beam_idx[i]`; the buffers are written in place."""
        for buffer in (self.keys, self.values):
            filled = buffer[:, :, : self.length]
            filled.copy_(filled.index_select(0, beam_idx))

    @torch.inference_mode(False)
    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence several times."""
        self.keys = self.keys.repeat_interleave(repeats, 0)
        self.values = self.values.repeat_interleave(repeats, 0)

    @torch.inference_mode(False)
    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some sequences."""
        self.keys, self.values = self.keys[indices], self.values[indices]


class _SlotStateLayer(_SlotLayer, StateLayer):
    """A layer's buffers and its states."""

    is_compileable = True
    is_croppable = False

    def __init__(
        self,
        slots: tuple[torch.Tensor, torch.Tensor, SlotNumbers],
        forms: Sequence[StateForm],
        states: Sequence[torch.Tensor],
    ) -> None:
        StateLayer.__init__(self, forms, states)
        _SlotLayer.__init__(self, *slots)

    def reset(self) -> None:
        """Forget everything."""
        _SlotLayer.reset(self)
        StateLayer.reset(self)

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Continue sequence `i` from sequence `beam_idx[i]`."""
        _SlotLayer.reorder_cache(self, beam_idx)
        StateLayer.reorder_cache(self, beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence several times."""
        _SlotLayer.batch_repeat_interleave(self, repeats)
        StateLayer.batch_repeat_interleave(self, repeats)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some sequences."""
        _SlotLayer.batch_select_indices(self, indices)
        StateLayer.batch_select_indices(self, indices)


class SlotCache(StaticCache):
    """Keys and values of the tokens so far, for calls of one compiled model.

    Args:
        shapes: by layer, the number of heads, the width of a key, and the width of a value.
        batch: how many sequences there are.
        numbers: how many slots the cache may have.
        dtype: the dtype of the keys and values.
        device: their device.
        layout: which layers keep what, if some keep states.
    """

    @torch.inference_mode(False)  # so that states can be written both under inference_mode and outside it
    def __init__(
        self,
        shapes: Sequence[tuple[int, int, int]],
        batch: int,
        numbers: SlotNumbers,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        layout: Layout | None = None,
    ) -> None:
        slots = numbers.for_tokens(1)
        keys = [(batch, heads, slots, width) for heads, width, _ in shapes]
        values = [(batch, heads, slots, width) for heads, _, width in shapes]
        self._stacks = SlotStacks([*keys, *values], dtype, device)
        made = self._stacks.buffers
        pairs = zip(made[: len(shapes)], made[len(shapes) :], strict=True)
        slots_of = [(*pair, numbers) for pair in pairs]
        self.layout = layout
        # Not StaticCache's own initializer, which makes its own layers.
        if layout is None:
            Cache.__init__(self, layers=[_SlotLayer(*each) for each in slots_of])
        else:
            states = layout.zeros(batch, device)
            Cache.__init__(self, layers=layout.make_layers(slots_of, states, _SlotLayer, _SlotStateLayer))

    @property
    def _attention(self) -> list[Any]:
        """The layers that keep keys and values."""
        return attention_layers(self.layers, self.layout)

    @property
    def buffers(self) -> tuple[list[torch.Tensor], ...]:
        """The keys and the values, by layer; the states, if there are any."""
        layers = self._attention
        slots = [layer.keys for layer in layers], [layer.values for layer in layers]
        return slots if self.layout is None else (*slots, states_in(self.layers, self.layout.states))

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """By layer, the number of heads, the width of a key, and the width of a value."""
        return [
            (layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in self._attention
        ]

    @property
    def device(self) -> torch.device:
        """The device of the keys and values."""
        device: torch.device = self._attention[0].keys.device
        return device

    @property
    def batch(self) -> int:
        """How many sequences there are."""
        return int(self._attention[0].batch_size)

    @property
    def numbers(self) -> SlotNumbers:
        """How many slots the cache may have."""
        numbers: SlotNumbers = self._attention[0].numbers
        return numbers

    @property
    def slots(self) -> int:
        """How many slots the cache has now."""
        return int(self._attention[0].keys.shape[2])

    def make_room(self, length: int, numbers: SlotNumbers) -> None:
        """Grow the cache, if needed, to the number of slots that `numbers` gives for `length` tokens."""
        layers = self._attention
        for layer in layers:
            layer.numbers = numbers
        slots = numbers.for_tokens(length)
        if slots <= self.slots:
            return
        keys, values = self.buffers[:2]
        self._stacks = SlotStacks.grown([*keys, *values], slots)
        made = self._stacks.buffers
        for layer, key, value in zip(layers, made[: len(keys)], made[len(keys) :], strict=True):
            layer.keys, layer.values = key, value

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens; transformers passes their number negated.

        Raises:
            RuntimeRefusal: the cache holds recurrent states, of which earlier ones are gone.
        """
        if self.layout is not None:
            raise RuntimeRefusal(
                "a cache with recurrent states cannot be cropped",
                remedy="leave past_key_values out, and pass the whole prompt",
            )
        super().crop(tokens_to_remove)

    def forget_all_but(self, length: int) -> None:
        """Set the number of filled slots; later ones are forgotten."""
        for layer in self._attention:
            layer.length = length

    def write(self, new: Sequence[Sequence[torch.Tensor]], start: int, count: int) -> None:
        """Write the keys and values of a call's first `count` tokens to the slots from `start` on.

        Args:
            new: the keys, the values, and the states, if there are any.
            start, count: the first slot to write, and the number of tokens.
        """
        keys, values, *states = self.buffers
        self._stacks.write([*keys, *values], [*new[0], *new[1]], start, count)
        if states:
            for state, made in zip(states[0], new[2], strict=True):
                state.copy_(made)
        for layer in self._attention:
            layer.length = start + count


def cut_attentions(output: Any, cache: SlotCache) -> None:
    """Cut attention weights to the filled slots, as transformers returns them."""
    for name in ("attentions", "decoder_attentions"):
        weights = getattr(output, name, None)
        if isinstance(weights, tuple):
            length = cache.get_seq_length()
            cut = [each[..., :length] if isinstance(each, torch.Tensor) else each for each in weights]
            setattr(output, name, tuple(cut))

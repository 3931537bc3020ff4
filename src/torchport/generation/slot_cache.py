"""The KV cache: buffers with one slot for each token, which a compiled call reads.

`SlotCache` is the cache that a caller holds from call to call. `PastCache` is the cache that the model sees
during a call: it merges the new keys and values with the past ones, writes nothing, and keeps the new ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, EncoderDecoderCache, StaticCache

from torchport.generation.pieces import SlotNumbers
from torchport.generation.recurrent_states import Layout, StateLayer, states_in
from torchport.generation.slot_stacks import SlotStacks
from torchport.records import StateForm


class _PastLayer(CacheLayerMixin):
    """A layer's past during one call.

    Args:
        keys, values: the past, `[batch, heads, slots, width]`.
        start: the number of filled slots: a tensor, so that one program serves all lengths.
        most: the maximum number of slots, if the numbers of new tokens and of slots may vary.
    """

    is_compileable = True
    is_sliding = False  # the mask implements a sliding window: every token keeps its slot

    def __init__(
        self,
        keys: torch.Tensor,
        values: torch.Tensor,
        start: torch.Tensor,
        most: int = 0,
    ) -> None:
        super().__init__()
        self.keys, self.values, self.start = keys, values, start
        self.most = most
        self.new: tuple[torch.Tensor, torch.Tensor] | None = None
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Do nothing: the buffers exist already."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the past with the new keys and values in their slots."""
        self.new = key_states, value_states
        self.keys, self.values = self._merge(self.keys, key_states), self._merge(self.values, value_states)
        return self.keys, self.values

    def _merge(self, past: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        count, slots = new.shape[2], past.shape[2]
        new = new.to(past.dtype)  # autocast may give keys and values another dtype
        if self.most:
            # There is room, so clamp and remainder change nothing: they show that the indices are in range.
            places = torch.arange(count, device=past.device) + self.start.clamp(0, self.most - 1)
            return past.index_copy(2, places % slots, new)
        places = torch.arange(slots, device=past.device) - self.start
        inside = (places >= 0) & (places < count)
        if count > 1:
            new = new.index_select(2, places.clamp(0, count - 1))
        return torch.where(inside.view(1, 1, -1, 1), new, past)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of slots that a mask covers, and the first one."""
        return self.keys.shape[2], 0

    def get_seq_length(self) -> torch.Tensor:
        """Return how many tokens came before."""
        return self.start

    def get_max_length(self) -> int:
        """Return the number of slots."""
        return int(self.keys.shape[2])


class _PastStateLayer(_PastLayer, StateLayer):
    """A layer's past and its states during one call."""

    is_compileable = True
    is_croppable = False

    def __init__(
        self,
        past: tuple[torch.Tensor, torch.Tensor, torch.Tensor, int],
        forms: Sequence[StateForm],
        states: Sequence[torch.Tensor],
    ) -> None:
        StateLayer.__init__(self, forms, states)
        _PastLayer.__init__(self, *past)


class PastCache(Cache):
    """A KV cache for one call of a model, whose new keys, values and states are in `new`.

    Args:
        keys, values: the past, by layer that keeps any.
        start: the number of filled slots.
        most: the maximum number of slots, if the numbers of new tokens and of slots may vary.
        layout: which layers keep what, if some keep states.
        states: the states before the call.
    """

    def __init__(
        self,
        keys: Sequence[torch.Tensor],
        values: Sequence[torch.Tensor],
        start: torch.Tensor,
        most: int = 0,
        layout: Layout | None = None,
        states: Sequence[torch.Tensor] = (),
    ) -> None:
        pasts = [(*pair, start, most) for pair in zip(keys, values, strict=True)]
        self._layout = layout
        if layout is None:
            super().__init__(layers=[_PastLayer(*past) for past in pasts])
        else:
            # Copies: some models write to a state in place.
            own = [state.clone() for state in states]
            super().__init__(layers=_layers_of(layout, pasts, own, _PastLayer, _PastStateLayer))

    @property
    def new(self) -> tuple[list[torch.Tensor], ...]:
        """What the call computed: the keys and the values by layer, empty where there are none; the states."""
        attention = _attention_layers(self.layers, self._layout)
        pairs = [layer.new or (layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in attention]
        made = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return made if self._layout is None else (*made, states_in(self.layers, self._layout.states))


def _layers_of(
    layout: Layout,
    pasts: Sequence[tuple[Any, ...]],
    states: Sequence[torch.Tensor],
    keys_only: Callable[..., Any],
    with_states: Callable[..., Any],
) -> list[Any]:
    """Return the layers of a cache: of keys and values, of states, or of both."""
    layers: list[Any] = []
    held = dict(zip(layout.attention, pasts, strict=True))
    for index in range(layout.layers):
        places = layout.states_of(index)
        forms, own = [layout.states[place] for place in places], [states[place] for place in places]
        if index not in held:
            layers.append(StateLayer(forms, own))
        elif forms:
            layers.append(with_states(held[index], forms, own))
        else:
            layers.append(keys_only(*held[index]))
    return layers


def _attention_layers(layers: Sequence[Any], layout: Layout | None) -> list[Any]:
    return list(layers) if layout is None else [layers[index] for index in layout.attention]


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

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse: earlier states are gone."""
        StateLayer.crop(self, tokens_to_remove)

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
            Cache.__init__(self, layers=_layers_of(layout, slots_of, states, _SlotLayer, _SlotStateLayer))

    @property
    def _attention(self) -> list[Any]:
        """The layers that keep keys and values."""
        return _attention_layers(self.layers, self.layout)

    @property
    def buffers(self) -> tuple[list[torch.Tensor], ...]:
        """The keys and the values, by layer; the states, if there are any."""
        layers = self._attention
        slots = [layer.keys for layer in layers], [layer.values for layer in layers]
        return slots if self.layout is None else (*slots, states_in(self.layers, self.layout.states))

    @property
    def shapes(self) -> list[tuple[int, int, int]]:
        """By layer, the number of heads, the width of a key, and the width of a value."""
        return [(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in self._attention]

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

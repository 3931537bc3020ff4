"""The KV cache that a model sees during a call: it merges the new keys and values with the past ones.

It writes nothing to the caller's buffers, and keeps what is new.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from torchport.generation.recurrent_states import Layout, StateLayer, attention_layers, states_in
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
            super().__init__(layers=layout.make_layers(pasts, own, _PastLayer, _PastStateLayer))

    @property
    def new(self) -> tuple[list[torch.Tensor], ...]:
        """What the call computed: keys and values by layer, empty where there are none; states, if any."""
        attention = attention_layers(self.layers, self._layout)
        pairs = [layer.new or (layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in attention]
        made = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        return made if self._layout is None else (*made, states_in(self.layers, self._layout.states))

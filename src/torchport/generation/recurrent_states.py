"""Recurrent states, which linear attention and short convolutions keep: of one size for any prompt.

A model that was given no state starts from zeros, so calls are always given one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import cache_utils

from torchport.records import STATE_KINDS, StateForm

# Releases of transformers without it have such layers of their own for each model, which are not supported.
LinearAttentionLayer: Any = getattr(cache_utils, "LinearAttentionLayer", object)


@dataclass(frozen=True, slots=True)
class Layout:
    """Which layers of a cache keep keys and values, and which keep states.

    Args:
        attention: the indices of the layers that keep keys and values.
        states: the states.
    """

    attention: tuple[int, ...]
    states: tuple[StateForm, ...]

    @property
    def layers(self) -> int:
        """How many layers the cache has."""
        return 1 + max((*self.attention, *(state.layer for state in self.states)))

    def make_layers(
        self,
        pasts: Sequence[tuple[Any, ...]],
        states: Sequence[torch.Tensor],
        keys_only: Callable[..., Any],
        with_states: Callable[..., Any],
    ) -> list[Any]:
        """Return the layers of a cache: of keys and values, of states, or of both.

        Args:
            pasts: the arguments of each layer of keys and values.
            states: the states.
            keys_only: makes a layer of keys and values of its arguments.
            with_states: makes one that holds states, too, of its arguments, the states' forms and the states.
        """
        layers: list[Any] = []
        held = dict(zip(self.attention, pasts, strict=True))
        for index in range(self.layers):
            places = [place for place, state in enumerate(self.states) if state.layer == index]
            forms, own = [self.states[place] for place in places], [states[place] for place in places]
            if index not in held:
                layers.append(StateLayer(forms, own))
            elif forms:
                layers.append(with_states(held[index], forms, own))
            else:
                layers.append(keys_only(*held[index]))
        return layers

    def zeros(self, batch: int, device: torch.device | str) -> list[torch.Tensor]:
        """Return the states of sequences without tokens."""
        return [
            torch.zeros(batch, *state.shape, dtype=getattr(torch, state.dtype), device=device)
            for state in self.states
        ]

    def states_of(self, layer: int) -> list[int]:
        """Return which of the states belong to a layer."""
        return [place for place, state in enumerate(self.states) if state.layer == layer]


class StateLayer(LinearAttentionLayer):
    """A layer's states, which exist from the beginning.

    Args:
        forms: what the layer keeps; empty for layers that keep nothing.
        tensors: the states, `[batch, …]`, in the same order.
    """

    def __init__(self, forms: Sequence[StateForm], tensors: Sequence[torch.Tensor]) -> None:
        number = 1 + max((form.index for form in forms), default=0)
        LinearAttentionLayer.__init__(self, number_of_states=number)
        self._forms = list(forms)
        for form, tensor in zip(forms, tensors, strict=True):
            _states_of_kind(self, form.kind)[form.index] = tensor
            getattr(self, f"is_{form.kind}_states_initialized")[form.index] = True
            if form.kind == "conv":
                self.conv_kernel_size[form.index] = tensor.shape[-1]
        self.has_previous_state = dict.fromkeys(range(number), True)

    @property
    def states(self) -> list[torch.Tensor]:
        """The states, in the order of their forms."""
        return [_states_of_kind(self, form.kind)[form.index] for form in self._forms]

    def reset(self) -> None:
        """Forget everything."""
        for state in self.states:
            state.zero_()

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Continue sequence `i` from sequence `beam_idx[i]`; the states are written in place."""
        for state in self.states:
            state.copy_(state.index_select(0, beam_idx))

    @torch.inference_mode(False)
    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence several times."""
        self._replace([state.repeat_interleave(repeats, 0) for state in self.states])

    @torch.inference_mode(False)
    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Keep some sequences."""
        self._replace([state[indices] for state in self.states])

    def _replace(self, states: Sequence[torch.Tensor]) -> None:
        for form, state in zip(self._forms, states, strict=True):
            _states_of_kind(self, form.kind)[form.index] = state


def _states_of_kind(layer: Any, kind: str) -> dict[int, torch.Tensor]:
    """Return a layer's states of a kind."""
    found: dict[int, torch.Tensor] = getattr(layer, f"{kind}_states")
    return found


def state_forms(layers: Sequence[object]) -> tuple[StateForm, ...]:
    """Return the forms of the states that layers of transformers' own cache hold after a token."""
    return tuple(form for index, layer in enumerate(layers) for form in _forms_of(index, layer))


def _forms_of(index: int, layer: object) -> Iterator[StateForm]:
    for kind in STATE_KINDS:
        held = getattr(layer, f"{kind}_states", None)
        if isinstance(
            held, Mapping
        ):  # older releases keep one tensor, and do not continue from several tokens
            for place, state in held.items():
                if state is not None:
                    dtype = str(state.dtype).removeprefix("torch.")
                    yield StateForm(index, kind, place, tuple(state.shape[1:]), dtype)


def states_in(layers: Sequence[object], forms: Sequence[StateForm]) -> list[torch.Tensor]:
    """Return the states of some forms that layers hold."""
    return [_states_of_kind(layers[form.layer], form.kind)[form.index] for form in forms]


def attention_layers(layers: Sequence[Any], layout: Layout | None) -> list[Any]:
    """Return the layers that keep keys and values: all, if there is no layout."""
    return list(layers) if layout is None else [layers[index] for index in layout.attention]

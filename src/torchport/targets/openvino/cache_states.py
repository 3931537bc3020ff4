"""Keeps an infer request's states in sync with the caller's KV caches, copying as little as possible.

After a call, the states hold what the caches held, followed by the rows that the call computed. If the next
call's caches contain just that, the states are already right. Otherwise they are refilled from the caches.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.nan_walk import SMALL
from torchport.targets.openvino.stateful_caches import ROWS, HeldCaches
from torchport.targets.target import OutOfRange

_version = operator.attrgetter("_version")


class CacheStates:
    """The states of one infer request, and what they hold.

    Args:
        held: the KV caches that the model holds as states.
        request: OpenVINO's infer request.
    """

    def __init__(self, held: HeldCaches, request: Any) -> None:
        self._held = held
        self._request = request
        self._states = {state.name: state for state in request.query_state()}
        self._places = [cache.given for cache in held.caches]  # the input indices of the caches
        self._length = -1  # how many rows the states hold; negative if they are invalid
        self._next = 0  # how many rows they hold after the current call
        self._begin = 0  # the first row of the last call
        # The caches' addresses and version counters in the last call.
        self._seen: tuple[list[int], list[int]] = [], []
        self._rows: list[torch.Tensor] = []  # the last call's rows of the first and the last cache

    def prepare(self, given: Sequence[torch.Tensor], addresses: Sequence[int], count: int) -> None:
        """Make the states match a call's caches.

        Args:
            given: the model's inputs.
            addresses: the inputs' memory addresses.
            count: how many rows the call will append.

        Raises:
            OutOfRange: the call does not append its rows, its mask exposes rows that are not written yet, or
                a cache holds values that are too large or not finite.
        """
        start = int(given[self._held.start])
        caches = [given[place] for place in self._places]
        self._next = start + count
        room = min([cache.size(ROWS) for cache in caches])
        if start < 0 or start > self._held.most or self._next > room:
            raise OutOfRange("the new rows of a KV cache are not appended to the existing ones")
        for mask in self._held.masks:
            shown = given[mask].numpy()
            # A mask of size 1 is broadcast to all rows.
            if shown.shape[-1] != room or shown[..., self._next :].any():
                raise OutOfRange("an attention mask exposes rows of a KV cache that are not written yet")
        places = [addresses[place] for place in self._places]
        try:
            versions = list(map(_version, caches))
        except RuntimeError:  # inference tensors do not track a version counter
            versions = []
        if not self._follow(caches, places, versions, start):
            self.forget()
            self._fill(caches, start)
        self._seen, self._begin, self._length = (places, versions), start, -1  # invalid until the call ends

    def note(self, rows: Sequence[torch.Tensor]) -> None:
        """Record that a call succeeded.

        Args:
            rows: the rows that it appended to the first and the last cache, in memory that nobody else
                writes to.
        """
        self._rows, self._length = list(rows), self._next

    def forget(self) -> None:
        """Invalidate the states, so that the next call refills them."""
        self._length = -1

    def _follow(
        self, caches: Sequence[torch.Tensor], places: list[int], versions: list[int], start: int
    ) -> bool:
        """Whether the caches are the last call's with its rows appended and nothing else changed.

        The version counters must show one write to each cache since then. The rows written are compared for
        the first and the last cache only.
        """
        if start != self._length or not versions:
            return False
        if places != self._seen[0] or versions != [version + 1 for version in self._seen[1]]:
            return False
        begin, count = self._begin, start - self._begin
        return all(
            torch.equal(cache.narrow(ROWS, begin, count), rows)
            for cache, rows in zip((caches[0], caches[-1]), self._rows, strict=True)
        )

    def _fill(self, caches: Sequence[torch.Tensor], start: int) -> None:
        if not start:
            self._request.reset_state()
            return
        for cache, tensor in zip(self._held.caches, caches, strict=True):
            rows = tensor.detach().narrow(ROWS, 0, start).float().contiguous()
            # Calls check their new rows themselves, with a sum in the model.
            if not float(rows.double().square().sum()) < SMALL**2 / 2:
                raise OutOfRange("a KV cache is not finite, or so large that other values could overflow")
            self._states[cache.name].state = openvino().Tensor(rows.numpy(), shared_memory=False)

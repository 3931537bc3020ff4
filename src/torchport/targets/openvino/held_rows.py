"""Has the states of a request hold what a caller's caches hold, copying as little as possible.

After a call, states hold what the caches held then, and the rows that it made. A call that comes with these
rows in its caches, and nothing else changed, needs no more. Any other has the states filled from its caches.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from torchport.targets.openvino.held_caches import ROWS, HeldCaches
from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.nan_walk import SMALL
from torchport.targets.target import OutOfRange

_version = operator.attrgetter("_version")


class HeldRows:
    """What the states of one request hold.

    Args:
        held: of the model.
        request: OpenVINO's.
    """

    def __init__(self, held: HeldCaches, request: Any) -> None:
        self._held = held
        self._request = request
        self._states = {state.name: state for state in request.query_state()}
        self._places = [cache.given for cache in held.caches]  # among the inputs
        self._length = -1  # how many rows they hold; they hold no cache's if it is negative
        self._next = 0
        self._begin = 0  # of the last call's rows
        # Addresses and versions of the caches, in the last call.
        self._seen: tuple[list[int], list[int]] = [], []
        self._rows: list[torch.Tensor] = []  # some of those that the last call made

    def prepare(self, given: Sequence[torch.Tensor], addresses: Sequence[int], count: int) -> None:
        """Let the states hold what a call's caches hold.

        Args:
            given: the model's inputs.
            addresses: theirs.
            count: how many rows the call will make.

        Raises:
            OutOfRange: rows are put elsewhere than behind the others, or such are seen as are not there.
        """
        start = int(given[self._held.start])
        caches = [given[place] for place in self._places]
        self._next = start + count
        room = min([cache.size(ROWS) for cache in caches])
        if start < 0 or start > self._held.most or self._next > room:
            raise OutOfRange("new rows of a cache are not put behind the others")
        for mask in self._held.masks:
            shown = given[mask].numpy()
            if shown.shape[-1] != room or shown[..., self._next :].any():  # of one size it is for all rows
                raise OutOfRange("a mask shows rows of a cache that are not there yet")
        places = [addresses[place] for place in self._places]
        try:
            versions = list(map(_version, caches))
        except RuntimeError:  # torch does not count for a tensor that was made under inference_mode
            versions = []
        if not self._follow(caches, places, versions, start):
            self.forget()
            self._fill(caches, start)
        self._seen, self._begin, self._length = (places, versions), start, -1  # until the call has ended

    def note(self, rows: Sequence[torch.Tensor]) -> None:
        """Remember that a call ended well.

        Args:
            rows: that it put behind the first cache and the last, in memory that nobody else writes to.
        """
        self._rows, self._length = list(rows), self._next

    def forget(self) -> None:
        """Let the next call fill the states."""
        self._length = -1

    def _follow(
        self, caches: Sequence[torch.Tensor], places: list[int], versions: list[int], start: int
    ) -> bool:
        """Whether caches are those of the last call, with the rows that it made and nothing else changed.

        Each was written to once since then. Of what was written, some is looked at.
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
            # What a call sums of its new rows says so of them.
            if not float(rows.double().square().sum()) < SMALL**2 / 2:
                raise OutOfRange("a cache is not finite, or so large that others could overflow")
            self._states[cache.name].state = openvino().Tensor(rows.numpy(), shared_memory=False)

"""The memory of a KV cache: buffers of one shape share one tensor, so that one copy writes to all of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch


class SlotStacks:
    """Buffers, one for each layer's keys and one for its values.

    The holder of the buffers may replace some; those are written one by one.

    Args:
        shapes: the buffers' shapes, `[batch, heads, slots, width]`.
        dtype: their dtype.
        device: their device.
    """

    @torch.inference_mode(False)  # so that they can be written both under inference_mode and outside it
    def __init__(
        self, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device | str = "cpu"
    ) -> None:
        places: dict[tuple[int, ...], list[int]] = {}
        for place, shape in enumerate(shapes):
            places.setdefault(shape, []).append(place)
        self._stacks = [
            (torch.zeros(len(each), *shape, dtype=dtype, device=device), each)
            for shape, each in places.items()
        ]
        made = {place: stack[i] for stack, each in self._stacks for i, place in enumerate(each)}
        self.buffers = [made[place] for place in range(len(shapes))]

    @classmethod
    @torch.inference_mode(False)
    def grown(cls, buffers: Sequence[torch.Tensor], slots: int) -> SlotStacks:
        """Return copies of buffers, grown to a number of slots."""
        shapes = [(*buffer.shape[:2], slots, buffer.shape[3]) for buffer in buffers]
        made = cls(shapes, buffers[0].dtype, buffers[0].device)
        for old, new in zip(buffers, made.buffers, strict=True):
            new[:, :, : old.shape[2]] = old
        return made

    def write(
        self, buffers: Sequence[torch.Tensor], new: Sequence[torch.Tensor], start: int, count: int
    ) -> None:
        """Write the first `count` new rows of each buffer to its slots from `start` on.

        Args:
            buffers: the buffers to write to: these ones, or their replacements.
            new: the rows of each buffer; empty for a buffer that gets none.
            start, count: the first slot to write, and the number of rows.
        """
        left = set(range(len(buffers)))
        for stack, places in self._stacks:
            rows = [new[place] for place in places]
            are_here = all(buffers[place] is self.buffers[place] for place in places)
            if are_here and rows[0].size(2) and len({row.shape for row in rows}) == 1:
                _write(stack, torch.stack(rows), start, count)
                left.difference_update(places)
        for place in left:
            if new[place].size(2):
                _write(buffers[place], new[place], start, count)

    def __getstate__(self) -> dict[str, object]:
        """Leave the stacks out: in a copy, torch would not count writes through them as the buffers' own."""
        return {"_stacks": [], "buffers": []}


def _write(buffer: torch.Tensor, rows: torch.Tensor, start: int, count: int) -> None:
    buffer.narrow(-2, start, count).copy_(rows.narrow(-2, 0, count))

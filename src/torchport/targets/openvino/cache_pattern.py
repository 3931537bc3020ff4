"""Recognizes keys and values that are a KV cache with new rows copied into it.

OpenVINO cannot write to its inputs in place: it copies the whole cache to insert one row, for each layer and
token. Attention can avoid that copy by multiplying the new rows separately from the cache's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchport.targets.openvino.ir_graph import is_number

_RANK, _HEADS, _ROWS, _WIDTH = 4, 1, 2, 3
_COPIES, _AXIS = "ScatterUpdate", 3
# With more new rows at once, scattering their scores costs more than copying the cache.
_MOST_NEW = 64


@dataclass(frozen=True)
class CachedRows:
    """A cache, some of whose rows are replaced by new ones.

    Args:
        cache, new: the cache and the new rows, `[batch, heads, rows, width]`; they may be in half precision.
        places: the indices of the rows that are replaced; the rule of `index_copy` requires distinct ones.
        heads: the number of query heads.
        shared_heads: the number of heads of the cache.
    """

    cache: Any
    new: Any
    places: Any
    heads: int
    shared_heads: int

    def are_placed_like(self, other: CachedRows) -> bool:
        """Whether both have the same rows replaced and the same head counts."""
        return self._placing() == other._placing()

    def _placing(self) -> tuple[object, ...]:
        return self.places.get_node().get_name(), self.places.get_index(), self.heads, self.shared_heads


def cached_rows(value: Any) -> CachedRows | None:
    """Return the cache and new rows that keys or values consist of; None if they have another form.

    Keys and values may be cast: attention computes in float32, whatever the cache's dtype.
    """
    if value.get_node().get_type_name() == "Convert":
        value = value.get_node().input_value(0)
    copied = _shared(value)
    node = copied.get_node()
    if node.get_type_name() != _COPIES or not is_number(node.input_value(_AXIS).get_node(), _ROWS):
        return None
    cache, places, new, _ = node.input_values()
    shapes = [port.get_partial_shape() for port in (value, cache, new, places)]
    if any(shape.rank.is_dynamic for shape in shapes):
        return None
    if [len(shape) for shape in shapes] != [_RANK, _RANK, _RANK, 1]:
        return None
    heads, shared_heads = (shape[_HEADS] for shape in shapes[:2])
    if heads.is_dynamic or shared_heads.is_dynamic or not _are_few(shapes[2][_ROWS], places):
        return None
    return CachedRows(cache, new, places, heads.get_length(), shared_heads.get_length())


def _are_few(count: Any, places: Any) -> bool:
    """Whether the new rows are few enough to be multiplied separately from the cache.

    If their number is open, they are if the indices wrap around in the cache, as a generated token's do.
    """
    if not count.is_dynamic:
        return bool(count.get_length() <= _MOST_NEW)
    return bool(places.get_node().get_type_name() == "FloorMod")


def _shared(value: Any) -> Any:
    """Return the tensor whose heads are repeated; the value itself if its heads are not repeated.

    Repeated heads are written as a new axis of size 1 that is broadcast and then merged into the heads.
    """
    joined = value.get_node()
    if joined.get_type_name() != "Reshape":
        return value
    spread = joined.input_value(0).get_node()
    if spread.get_type_name() != "Broadcast":
        return value
    parted = spread.input_value(0).get_node()
    if parted.get_type_name() != "Unsqueeze" or not is_number(parted.input_value(1).get_node(), _HEADS + 1):
        return value
    source = parted.input_value(0)
    before, between, after = (
        port.get_partial_shape() for port in (source, spread.output(0), joined.output(0))
    )
    if any(shape.rank.is_dynamic for shape in (before, between, after)):
        return value
    if [len(shape) for shape in (before, between, after)] != [_RANK, _RANK + 1, _RANK]:
        return value
    known = [before[place] for place in (0, _HEADS, _WIDTH)] + [between[place] for place in (0, 1, 2, 4)]
    if any(size.is_dynamic for size in (*known, *(after[place] for place in (0, _HEADS, _WIDTH)))):
        return value
    batch, heads, width = (before[place].get_length() for place in (0, _HEADS, _WIDTH))
    times = between[2].get_length()
    if [between[place].get_length() for place in (0, 1, 4)] != [batch, heads, width]:
        return value
    if [after[place].get_length() for place in (0, _HEADS, _WIDTH)] != [batch, heads * times, width]:
        return value
    return source if before[_ROWS] == between[_ROWS + 1] == after[_ROWS] else value

"""Decomposes attention into matrix products and a softmax, faster than OpenVINO's own decomposition.

OpenVINO's attention kernel only supports KV caches that are its own states, and does not exist on ARM. Its
decomposition multiplies all keys by the square root of the scale, and transposes them, in each call; for a
cache that costs many times what the token itself needs. Here the scale is applied to the queries, and the
product reads the keys in place.

A cache into which a call's new rows are copied is not copied; see `cache_pattern.py`.
"""

from __future__ import annotations

import math
from typing import Any

from torchport.targets.openvino.cache_pattern import CachedRows, cached_rows
from torchport.targets.openvino.library import openvino
from torchport.targets.openvino.stateful_caches import is_held

_QUERY, _KEY, _VALUE, _MASK, _SCALE = range(5)
_FLOAT = "f32"
_COLUMNS = 3  # the axis of the scores that indices of rows of keys refer to


def write_attention(model: Any, *, in_float32: bool = False) -> None:
    """Decompose each attention that is not `causal` and whose scale is known.

    Args:
        model: OpenVINO's model, changed in place.
        in_float32: whether half-precision attention is computed in float32, and rounded once.
    """
    for node in model.get_ordered_ops():
        if node.get_type_name() != "ScaledDotProductAttention" or node.get_attributes()["causal"]:
            continue
        if is_held(node):
            continue
        attention = _Attention(node, in_float32=in_float32)
        scale = attention.scale()
        if scale is None:
            continue
        written = attention.written(scale)
        written.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(written.output(0))
    model.validate_nodes_and_infer_types()


class _Attention:
    """One attention op and the dtype that it is computed in."""

    def __init__(self, node: Any, *, in_float32: bool) -> None:
        self._node = node
        self._gives = node.get_output_element_type(0).get_type_name()
        self._dtype = _FLOAT if in_float32 else self._gives

    def scale(self) -> Any:
        """Return the factor for the queries; None if it is not known, or the dtype would round it."""
        if self._node.get_input_size() > _SCALE:
            return self._input(_SCALE)
        width = self._node.get_input_partial_shape(_QUERY)[-1]
        if width.is_dynamic or self._dtype != _FLOAT:
            return None
        return openvino().opset13.constant(1 / math.sqrt(width.get_length()), openvino().Type.f32)

    def written(self, scale: Any) -> Any:
        """Return the decomposition's result."""
        opset = openvino().opset13
        query = opset.multiply(self._input(_QUERY), scale)
        result = self._of_cache(query)
        if result is None:
            scores = opset.matmul(query, self._input(_KEY), transpose_a=False, transpose_b=True)
            probabilities = self._probabilities(scores)
            result = opset.matmul(probabilities, self._input(_VALUE), transpose_a=False, transpose_b=False)
        return result if self._dtype == self._gives else opset.convert(result, self._gives)

    def _input(self, place: int) -> Any:
        return self._computed(self._node.input_value(place))

    def _computed(self, value: Any) -> Any:
        """Return a value cast to the dtype of the computation."""
        if value.get_element_type().get_type_name() == self._dtype:
            return value
        return openvino().opset13.convert(value, self._dtype)

    def _probabilities(self, scores: Any) -> Any:
        opset = openvino().opset13
        if self._node.get_input_size() > _MASK:
            mask = self._node.input_value(_MASK)
            if mask.get_element_type() == openvino().Type.boolean:
                hidden = opset.convert(opset.constant(-math.inf, openvino().Type.f32), self._dtype)
                scores = opset.select(mask, scores, hidden)
            else:
                scores = opset.add(scores, self._computed(mask))
        return opset.softmax(scores, -1)

    def _of_cache(self, query: Any) -> Any | None:
        """Return attention to a cache without copying the new rows into it; None if there is no such cache.

        The new rows are multiplied separately. Their scores overwrite those of the rows that they replace.
        Query heads that share keys are grouped.
        """
        keys, values = (cached_rows(self._node.input_value(place)) for place in (_KEY, _VALUE))
        # In half precision, the sum of two products would be rounded once more than a single product.
        if keys is None or values is None or self._dtype != _FLOAT or not keys.are_placed_like(values):
            return None
        opset = openvino().opset13
        heads, shared = keys.heads, keys.shared_heads
        query = _grouped(query, shared, keys)
        before, own = (
            opset.matmul(query, self._computed(rows), transpose_a=False, transpose_b=True)
            for rows in (keys.cache, keys.new)
        )
        columns = opset.constant(_COLUMNS, openvino().Type.i64)
        scores = opset.scatter_update(before, keys.places, own, columns)
        probabilities = _grouped(self._probabilities(_grouped(scores, heads, keys)), shared, keys)
        of_new = opset.gather(probabilities, keys.places, columns)
        nothing = opset.multiply(of_new, opset.constant(0.0, openvino().Type.f32))
        of_cache = opset.scatter_update(probabilities, keys.places, nothing, columns)
        before, own = (
            opset.matmul(probabilities, self._computed(rows), transpose_a=False, transpose_b=False)
            for probabilities, rows in ((of_cache, values.cache), (of_new, values.new))
        )
        return _grouped(opset.add(before, own), heads, keys)


def _grouped(value: Any, heads: int, keys: CachedRows) -> Any:
    """Reshape a tensor to `heads` heads, moving heads to rows or back; unchanged if no heads are shared."""
    if keys.heads == keys.shared_heads:
        return value
    opset = openvino().opset13
    return opset.reshape(value, opset.constant([0, heads, -1, 0], openvino().Type.i64), special_zero=True)

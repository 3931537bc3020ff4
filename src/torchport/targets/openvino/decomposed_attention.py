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
from torchport.targets.openvino.library import in_float32, openvino
from torchport.targets.openvino.stateful_caches import is_held

_QUERY, _KEY, _VALUE, _MASK, _SCALE = range(5)
_COLUMNS = 3  # the axis of the scores that indices of rows of keys refer to


def write_attention(model: Any) -> None:
    """Decompose each attention of a model that is not `causal` and whose scale is known, in place."""
    for node in model.get_ordered_ops():
        if node.get_type_name() != "ScaledDotProductAttention" or node.get_attributes()["causal"]:
            continue
        if is_held(node):
            continue
        attention = _Attention(node)
        scale = attention.scale()
        if scale is None:
            continue
        written = attention.written(scale)
        written.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(written.output(0))
    model.validate_nodes_and_infer_types()


class _Attention:
    """One attention op, which computes in float32."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def scale(self) -> Any:
        """Return the factor for the queries; None if it is not known."""
        if self._node.get_input_size() > _SCALE:
            return self._node.input_value(_SCALE)
        width = self._node.get_input_partial_shape(_QUERY)[-1]
        if width.is_dynamic:
            return None
        return openvino().opset13.constant(1 / math.sqrt(width.get_length()), openvino().Type.f32)

    def written(self, scale: Any) -> Any:
        """Return the decomposition's result."""
        opset = openvino().opset13
        query = opset.multiply(self._node.input_value(_QUERY), scale)
        result = self._of_cache(query)
        if result is None:
            scores = opset.matmul(query, self._node.input_value(_KEY), transpose_a=False, transpose_b=True)
            probabilities = self._probabilities(scores)
            result = opset.matmul(
                probabilities, self._node.input_value(_VALUE), transpose_a=False, transpose_b=False
            )
        return result

    def _probabilities(self, scores: Any) -> Any:
        opset = openvino().opset13
        if self._node.get_input_size() > _MASK:
            mask = self._node.input_value(_MASK)
            if mask.get_element_type() == openvino().Type.boolean:
                hidden = opset.constant(-math.inf, openvino().Type.f32)
                scores = opset.select(mask, scores, hidden)
            else:
                scores = opset.add(scores, mask)
        return opset.softmax(scores, -1)

    def _of_cache(self, query: Any) -> Any | None:
        """Return attention to a cache without copying the new rows into it; None if there is no such cache.

        The new rows are multiplied separately. Their scores overwrite those of the rows that they replace.
        Query heads that share keys are grouped.
        """
        keys, values = (cached_rows(self._node.input_value(place)) for place in (_KEY, _VALUE))
        if keys is None or values is None or not keys.are_placed_like(values):
            return None
        opset = openvino().opset13
        heads, shared = keys.heads, keys.shared_heads
        query = _grouped(query, shared, keys)
        before, own = (
            opset.matmul(query, in_float32(rows), transpose_a=False, transpose_b=True)
            for rows in (keys.cache, keys.new)
        )
        columns = opset.constant(_COLUMNS, openvino().Type.i64)
        scores = opset.scatter_update(before, keys.places, own, columns)
        probabilities = _grouped(self._probabilities(_grouped(scores, heads, keys)), shared, keys)
        of_new = opset.gather(probabilities, keys.places, columns)
        nothing = opset.multiply(of_new, opset.constant(0.0, openvino().Type.f32))
        of_cache = opset.scatter_update(probabilities, keys.places, nothing, columns)
        before, own = (
            opset.matmul(probabilities, in_float32(rows), transpose_a=False, transpose_b=False)
            for probabilities, rows in ((of_cache, values.cache), (of_new, values.new))
        )
        return _grouped(opset.add(before, own), heads, keys)


def _grouped(value: Any, heads: int, keys: CachedRows) -> Any:
    """Reshape a tensor to `heads` heads, moving heads to rows or back; unchanged if no heads are shared."""
    if keys.heads == keys.shared_heads:
        return value
    opset = openvino().opset13
    return opset.reshape(value, opset.constant([0, heads, -1, 0], openvino().Type.i64), special_zero=True)

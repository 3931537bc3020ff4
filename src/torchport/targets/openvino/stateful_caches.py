"""Rewrites a model to hold its KV caches as states between calls, which enables OpenVINO's attention kernel.

That kernel appends new rows in place and reads only the rows that are filled, but it only supports the
model's own states, and only on x86. States are float32, whatever the cache's dtype. Nothing changes for
callers: they still pass the caches and write the new rows into them; `cache_states.py` keeps the states in
sync.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from typing import Any

import numpy

from torchport.targets.openvino.cache_pattern import CachedRows, cached_rows
from torchport.targets.openvino.ir_graph import is_number, port_key, reached, readers
from torchport.targets.openvino.joined_cache_outputs import join_rows
from torchport.targets.openvino.library import in_float32, openvino

# Keeps states in float32; by default, OpenVINO quantizes them to 8 bits.
FULL_PRECISION_CACHE = {"KV_CACHE_PRECISION": "f32"}

_QUERY, _KEY, _VALUE, _MASK, _SCALE = range(5)
ROWS, _LAST = 2, 3
_KERNEL = "ScaledDotProductAttention"
# Ops between a cache and the sum over it that shows whether its values are small.
_SUMMED = frozenset({"Multiply", "Add", "Convert"})
# Ops that repeat the heads of a cache.
_REPEATS = frozenset({"Unsqueeze", "Broadcast", "Reshape"})


@dataclass(frozen=True)
class Cache:
    """A key or value tensor of a KV cache that the model holds as a state.

    Args:
        name: the state's name.
        given: the index of the model input that is the cache.
        made: the index of the model output that is its new rows.
    """

    name: str
    given: int
    made: int


@dataclass
class HeldCaches:
    """A model that holds its KV caches as states.

    Args:
        model: OpenVINO's model, with the states.
        start: the index of the input that says how many rows are filled.
        most: the largest value of that input.
        masks: the indices of the inputs that are attention masks; they must hide rows not written yet.
        caches: the tensors that are held.
        attentions: how many ops OpenVINO must compile to its attention kernel.
        ports: the island's outputs that each output holds; the new rows of many caches are joined into one.
    """

    model: Any
    start: int
    most: int
    masks: list[int] = field(default_factory=list)
    caches: list[Cache] = field(default_factory=list)
    attentions: int = 0
    ports: list[list[int]] = field(default_factory=list)

    def uses_attention_kernel(self, compiled: Any) -> bool:
        """Whether OpenVINO compiled every attention to its kernel."""
        kinds = [
            node.get_rt_info()["layerType"].astype(str) for node in compiled.get_runtime_model().get_ops()
        ]
        return kinds.count(_KERNEL) == self.attentions


def hold_caches(model: Any, sums: int) -> HeldCaches | None:
    """Return a copy of a model that holds its KV caches as states.

    None if the model has no caches or uses them for anything else, or if the CPU is not an x86 one.

    Args:
        model: OpenVINO's model.
        sums: how many of its last outputs are sums that show whether its values are small.
    """
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return None
    attentions = [node for node in model.get_ops() if node.get_type_name() == "ScaledDotProductAttention"]
    if not any(_rows_of(attention) for attention in attentions):
        return None
    try:
        return _Rewriter(model.clone(), sums).held()
    except _Unsupported:
        return None


def is_held(attention: Any) -> bool:
    """Whether an attention reads a state of the model."""
    node = attention.input_value(_KEY).get_node()
    while node.get_type_name() in _REPEATS | {"Concat", "Gather"}:
        node = node.input_value(0).get_node()
    return bool(node.get_type_name() == "ReadValue")


class _Unsupported(Exception):  # not an error: the caches then stay inputs
    """A model uses a cache for anything but attention, or in a form that is not recognized."""


def _rows_of(node: Any) -> tuple[CachedRows, CachedRows] | None:
    keys, values = cached_rows(node.input_value(_KEY)), cached_rows(node.input_value(_VALUE))
    if keys is None or values is None or not keys.are_placed_like(values):
        return None
    return keys, values


class _Rewriter:
    """Rewrites one model to hold its caches."""

    def __init__(self, model: Any, sums: int) -> None:
        self._model = model
        results = model.get_results()
        self._count = sums
        self._sums = {node.get_name() for node in results[len(results) - sums :]}
        self._lengths: set[str] = set()  # inputs whose number of rows the model uses as a cache's size
        self._inputs = {node.get_name(): index for index, node in enumerate(model.get_parameters())}
        self._outputs = {
            port_key(node.input_value(0)): index for index, node in enumerate(model.get_results())
        }
        self._sinks = list(model.get_sinks())
        self._masks: dict[tuple[str, int], Any] = {}
        self._orders: dict[int, Any] = {}
        self._new: dict[str, Any] = {}  # the new rows of each cache, by the input's name
        self._found: HeldCaches | None = None

    def held(self) -> HeldCaches:
        """Return the model with states.

        Raises:
            _Unsupported: the model's caches cannot be held.
        """
        for node in self._model.get_ordered_ops():
            if node.get_type_name() == "ScaledDotProductAttention":
                rows = _rows_of(node)
                if rows is not None:
                    self._hold(node, *rows)
        assert self._found is not None  # `hold_caches` found an attention to a cache
        if not self._lengths <= self._new.keys():
            raise _Unsupported
        for cache in self._found.caches:
            self._sum_new_rows(self._model.get_parameters()[cache.given])
        made = [cache.made for cache in self._found.caches]
        results, self._found.ports = join_rows(self._model, made, self._count)
        model = openvino().Model(results, self._sinks, self._model.get_parameters())
        try:
            model.validate_nodes_and_infer_types()
        except RuntimeError as error:  # a sum mixes caches with other values
            raise _Unsupported from error
        self._found.model = model
        return self._found

    def _hold(self, node: Any, keys: CachedRows, values: CachedRows) -> None:
        opset = openvino().opset13
        if node.get_attributes()["causal"] or node.get_input_size() <= _MASK:
            raise _Unsupported
        start, most = self._start(keys)
        if self._found is None:
            self._found = HeldCaches(None, start, most)
        if (self._found.start, self._found.most) != (start, most):
            raise _Unsupported
        self._found.attentions += 1
        whole = [self._state(rows) for rows in (keys, values)]
        mask = self._mask(node.input_value(_MASK), whole[0])
        seen = [_shared(each, rows) for each, rows in zip(whole, (keys, values), strict=True)]
        scale = [] if node.get_input_size() <= _SCALE else [node.input_value(_SCALE)]
        made = opset.scaled_dot_product_attention(node.input_value(_QUERY), *seen, mask, *scale, causal=False)
        made.set_friendly_name(node.get_friendly_name())
        node.output(0).replace(made.output(0))

    def _state(self, rows: CachedRows) -> Any:
        """Return the state of a cache with the new rows appended."""
        opset, library = openvino().opset13, openvino()
        given, made = (
            self._inputs.get(rows.cache.get_node().get_name()),
            self._outputs.get(port_key(rows.new)),
        )
        shape = rows.cache.get_partial_shape()
        sizes = [shape[place] for place in (0, 1, _LAST)]
        if given is None or made is None or any(size.is_dynamic for size in sizes):
            raise _Unsupported
        assert self._found is not None
        if any(cache.given == given for cache in self._found.caches):
            raise _Unsupported  # two layers share a cache
        batch, heads, width = (size.get_length() for size in sizes)
        name = f"cache {given}"
        self._found.caches.append(Cache(name, given, made))
        self._new[rows.cache.get_node().get_name()] = rows.new
        nothing = opset.constant(numpy.zeros((batch, heads, 0, width), numpy.float32))
        variable = library.PartialShape([batch, heads, -1, width])
        state = opset.read_value(nothing, name, library.Type.f32, variable)
        before = opset.gather(state, self._order(batch), opset.constant(0, library.Type.i64))
        whole = opset.concat([before, in_float32(rows.new)], ROWS)
        self._sinks.append(opset.assign(whole, name))
        return whole

    def _order(self, batch: int) -> Any:
        """Return the beam indices, here the identity: OpenVINO recognizes a cache by this `Gather`."""
        if batch not in self._orders:
            numbers = numpy.arange(batch, dtype=numpy.int32)
            self._orders[batch] = openvino().opset13.constant(numbers)
        return self._orders[batch]

    def _mask(self, mask: Any, whole: Any) -> Any:
        """Return the mask of the filled rows; `CacheStates` refuses calls whose mask exposes others."""
        index = self._inputs.get(mask.get_node().get_name())
        if index is None or mask.get_element_type() != openvino().Type.boolean:
            raise _Unsupported
        if mask.get_partial_shape().rank.get_length() != _LAST + 1:
            raise _Unsupported
        if port_key(mask) not in self._masks:
            opset, integer = openvino().opset13, openvino().Type.i64
            first = opset.constant(0, integer)
            length = opset.gather(opset.shape_of(whole), opset.constant([ROWS], integer), first)
            zero, one, last = (opset.constant([number], integer) for number in (0, 1, _LAST))
            self._masks[port_key(mask)] = opset.slice(mask, zero, length, one, last)
            assert self._found is not None
            self._found.masks.append(index)
        return self._masks[port_key(mask)]

    def _start(self, rows: CachedRows) -> tuple[int, int]:
        """Return the index of the input that says where new rows are appended, and its largest value."""
        place = rows.places.get_node()
        if place.get_type_name() != "FloorMod" or not self._is_size(place.input_value(1), rows.cache):
            raise _Unsupported
        added = place.input_value(0).get_node()
        if added.get_type_name() != "Add":
            raise _Unsupported
        limited, numbers = sorted(
            (port.get_node() for port in added.input_values()),
            key=lambda node: node.get_type_name() != "Clamp",
        )
        if limited.get_type_name() != "Clamp" or not _counts(numbers):
            raise _Unsupported
        limits = limited.get_attributes()
        start = self._inputs.get(limited.input_value(0).get_node().get_name())
        if start is None or limits["min"] > 0:
            raise _Unsupported
        return start, int(limits["max"])

    def _is_size(self, value: Any, cache: Any) -> bool:
        """Whether a value is the number of rows of a cache, or of an input that must prove to be held too."""
        size = cache.get_partial_shape()[ROWS]
        node = value.get_node()
        while node.get_type_name() in ("Convert", "Squeeze", "Unsqueeze", "Reshape"):
            node = node.input_value(0).get_node()
        if node.get_type_name() == "Constant":
            return not size.is_dynamic and is_number(node, size.get_length())
        if node.get_type_name() != "Gather" or not is_number(node.input_value(1).get_node(), ROWS):
            return False
        shape = node.input_value(0).get_node()
        if shape.get_type_name() != "ShapeOf":
            return False
        self._lengths.add(shape.input_value(0).get_node().get_name())
        return True

    def _sum_new_rows(self, cache: Any) -> None:
        """Make sums over a cache sum only its new rows: earlier calls summed the older rows."""
        for target in readers(cache.output(0)):
            kind = target.get_node().get_type_name()
            if kind == "ShapeOf" or (kind == "ScatterUpdate" and not _is_read(target.get_node())):
                continue
            if not self._is_summed(target.get_node()):
                raise _Unsupported
            target.replace_source_output(self._new[cache.get_name()])

    def _is_summed(self, node: Any) -> bool:
        """Whether an op is used only for the sums that show whether values are small."""
        _, others = reached(node, lambda each: each.get_type_name() in _SUMMED)
        if any(each.get_type_name() != "ReduceSum" for each in others):
            return False
        ends = [end for each in others for end in reached(each, lambda _: True)[0] if _is_end(end)]
        return all(end.get_name() in self._sums for end in ends)


def _is_end(node: Any) -> bool:
    return node.get_type_name() in ("Result", "Assign")


def _is_read(node: Any) -> bool:
    """Whether anything still reads an op, other than for the shape of its result."""
    _, others = reached(node, lambda each: each is node or each.get_type_name() in _REPEATS | {"Convert"})
    return any(each.get_type_name() != "ShapeOf" for each in others)


def _shared(value: Any, rows: CachedRows) -> Any:
    """Return keys or values with their heads repeated, one for each query head."""
    if rows.heads == rows.shared_heads:
        return value
    opset, integer = openvino().opset13, openvino().Type.i64
    apart = opset.unsqueeze(value, opset.constant(ROWS, integer))
    times = opset.constant([1, 1, rows.heads // rows.shared_heads, 1, 1], integer)
    spread = opset.broadcast(apart, times, broadcast_spec="BIDIRECTIONAL")
    return opset.reshape(
        spread, opset.constant([0, rows.heads, -1, _width(rows)], integer), special_zero=True
    )


def _width(rows: CachedRows) -> int:
    return int(rows.cache.get_partial_shape()[_LAST].get_length())


def _counts(node: Any) -> bool:
    """Whether an op gives 0, 1, 2, …; as many as there are new rows, or the copy would be invalid."""
    node = _unconverted(node)
    if node.get_type_name() == "Multiply":  # floor(abs(x)) * sign(x), as `truncate_conversions` writes it
        sources = {port.get_node().get_type_name(): port.get_node() for port in node.input_values()}
        if sources.keys() != {"Floor", "Sign"}:
            return False
        size = _unconverted(sources["Floor"].input_value(0).get_node())
        if size.get_type_name() != "Abs":
            return False
        node, signed = (_unconverted(each.input_value(0).get_node()) for each in (size, sources["Sign"]))
        if node.get_name() != signed.get_name():
            return False
    if node.get_type_name() != "Range":
        return False
    first, _, step = (port.get_node() for port in node.input_values())
    return is_number(first, 0) and is_number(step, 1)


def _unconverted(node: Any) -> Any:
    while node.get_type_name() == "Convert":
        node = node.input_value(0).get_node()
    return node

"""Propagates value ranges through an island and finds the first op where OpenVINO could mishandle NaN.

Ranges of float values are propagated from the inputs. An op is in trouble if it reads a value that could be
NaN and may lose it; if NaN could arise in it, from infinities or overflowing sums, where it would not in
torch, or the reverse; or if it handles an infinity differently from torch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import fx

from torchport.targets.openvino.float_ranges import (
    ANYTHING,
    ANYTHING_BUT_NAN,
    FINITE,
    MAX,
    Range,
    stored,
)
from torchport.targets.openvino.float_values import Values, is_float
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.rules import Misread, Rule, given, range_of_result

# The largest absolute value of a tensor that counts as small.
SMALL = 2e10
# Ops that may be fused with the sum that reads them, so that their result is not rounded and cannot overflow.
_PRODUCTS = frozenset({"aten.mul.Tensor", "aten.mul.Scalar", "aten.div.Tensor", "aten.div.Scalar"})
_UNKNOWN = Rule("", lambda node, values: ANYTHING)


class Condition(Enum):
    """What a watched value must be on each call."""

    FINITE = "finite"
    SMALL = "absolute values no larger than `SMALL`"
    ROWS = "a finite maximum in each row; for booleans, a true element in each row"
    NOT_PLUS_INF = "less than inf"
    FITS = "within the range of its dtype"


@dataclass(frozen=True, slots=True)
class Watch:
    """A value that must meet a condition on each call.

    Args:
        node: the value.
        condition: what it must be.
        dims: the dimensions that rows extend along, for `Condition.ROWS`.
        positive: whether it has no negative elements.
    """

    node: fx.Node
    condition: Condition
    dims: tuple[int, ...] | None = None
    positive: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """The first op whose result could differ.

    Args:
        index: the index of the node in the island.
        sources: the operands that must be finite; empty if finite operands can give NaN, too.
    """

    index: int
    sources: tuple[fx.Node, ...] = ()


@dataclass(slots=True)
class Found:
    """The result of a walk: the ranges up to the first trouble, and the rows that must be watched."""

    ranges: dict[fx.Node, Range] = field(default_factory=dict)
    rows: dict[Watch, None] = field(default_factory=dict)
    trouble: Trouble | None = None


class Island:
    """An island's nodes, prepared for repeated walks."""

    def __init__(self, graph_module: fx.GraphModule, rules: Mapping[str, Rule] = RULES) -> None:
        self.nodes: list[fx.Node] = list(graph_module.graph.nodes)
        self.inputs = [node for node in self.nodes if node.op == "placeholder"]
        self.index = {node: index for index, node in enumerate(self.nodes)}
        self._rules = [rules.get(str(node.target), _UNKNOWN) for node in self.nodes]
        floats = {node for node in self.nodes if is_float(node)}
        self._floats = [node in floats for node in self.nodes]
        self._sources = [[one for one in node.all_input_nodes if one in floats] for node in self.nodes]
        self._graph_module = graph_module
        self._remembered: dict[object, object] = {}

    def walk(
        self,
        conditions: Mapping[fx.Node, Condition],
        infinite: Collection[fx.Node] = (),
        known: Found | None = None,
        start: int = 0,
    ) -> Found:
        """Return the ranges of all nodes up to the first trouble.

        Args:
            conditions: the nodes known to be finite or small.
            infinite: the inputs that may hold infinities.
            known: an earlier walk, valid for all nodes before `start`.
            start: the index of the first node to visit.
        """
        found = Found() if known is None else Found(dict(known.ranges), dict(known.rows))
        values = Values(self._graph_module, found.ranges, self._remembered)
        for index in range(start, len(self.nodes)):
            node = self.nodes[index]
            if node.op == "placeholder":
                found.ranges[node] = ANYTHING_BUT_NAN if node in infinite else _finite_input(node)
            elif node.op == "get_attr":
                found.ranges[node] = values.of(node)
            elif node.op == "call_function":
                found.trouble = self._call(index, values, found, conditions)
                if found.trouble is not None:
                    return found
            if node in conditions and node in found.ranges:
                found.ranges[node] = _given(found.ranges[node], conditions[node])
        return found

    def _call(
        self, index: int, values: Values, found: Found, conditions: Mapping[fx.Node, Condition]
    ) -> Trouble | None:
        node = self.nodes[index]
        if node.target is operator.getitem:
            found.ranges[node] = values.of(node.args[0])
            return None
        rule, sources = self._rules[index], self._sources[index]
        lost = () if rule.nan.is_kept else tuple(one for one in sources if values.of(one).nan)
        misread, rows, narrowed = _misread(node, rule, values)
        if lost or misread:
            return Trouble(index, lost or misread)
        found.rows.update(dict.fromkeys(rows))
        if not self._floats[index]:
            return None
        values = values.seen_with({**found.ranges, **narrowed}) if narrowed else values
        result = rule.floats(node, values)
        if rows and rule.misread not in (Misread.PLUS_IN_MASK, Misread.MASK_ROWS):
            result = result.finite if rule.misread is Misread.MINUS_ROWS else replace(result, nan=False)
        elif (
            result.nan
            and not (rule.nan.arises and not any(_overflows(one, values) for one in sources))
            and not _is_finite(node, conditions)
        ):
            trouble = _arising(index, node, rule, sources, values)
            if trouble is not None:
                return trouble
        found.ranges[node] = stored(result, _dtype_of(node))
        return None


def _finite_input(node: fx.Node) -> Range:
    return FINITE.within(torch.finfo(_dtype_of(node)).max) if is_float(node) else FINITE


def _dtype_of(node: fx.Node) -> torch.dtype:
    """Return the dtype of a node's float result; that of the first, if there are several."""
    value = node.meta["val"]
    dtype = (value[0] if isinstance(value, (list, tuple)) else value).dtype
    assert isinstance(dtype, torch.dtype)
    return dtype


def _given(known: Range, condition: Condition) -> Range:
    return known.within(SMALL) if condition is Condition.SMALL else known.finite


def _is_finite(node: fx.Node, conditions: Mapping[fx.Node, Condition]) -> bool:
    """Whether an op's result, or each used one of several, is watched."""
    users = [user for user in node.users if user.target is operator.getitem]
    return node in conditions or (bool(users) and all(user in conditions for user in users))


def _overflows(node: fx.Node, values: Values) -> bool:
    """Whether a product of finite operands could overflow; fused with a sum, it may not."""
    if str(node.target) not in _PRODUCTS:
        return False
    finite = {one: values.of(one).finite for one in node.all_input_nodes if is_float(one)}
    return range_of_result(node, values.seen_with({**values.ranges, **finite})).infinite


def _arising(index: int, node: fx.Node, rule: Rule, sources: list[fx.Node], values: Values) -> Trouble | None:
    """Return the trouble of an op whose result could be NaN; None if only because an operand is."""
    numbers = {**values.ranges, **{one: replace(values.of(one), nan=False) for one in sources}}
    if not rule.floats(node, values.seen_with(numbers)).nan:
        return None
    return Trouble(index, tuple(one for one in sources if values.of(one).infinite))


def _misread(
    node: fx.Node, rule: Rule, values: Values
) -> tuple[tuple[fx.Node, ...], list[Watch], dict[fx.Node, Range]]:
    """Return the operands that must be finite, the rows to watch, and the operand ranges that then hold."""
    if rule.misread is Misread.NONE:
        return (), [], {}
    in_mask = rule.misread in (Misread.PLUS_IN_MASK, Misread.MASK_ROWS)
    source = given(node, 3, "attn_mask") if in_mask else node.args[0]
    if isinstance(source, fx.Node) and rule.misread is Misread.MASK_ROWS:
        return (), [Watch(source, Condition.ROWS, (-1,))], {source: _without_plus_inf(values.of(source))}
    if not isinstance(source, fx.Node) or not is_float(source):
        return (), [], {}
    known = values.of(source)
    below, above = known.low == -math.inf, known.high == math.inf
    if rule.misread is Misread.PLUS_IN_MASK and above:
        return (), [Watch(source, Condition.NOT_PLUS_INF)], {source: _without_plus_inf(known)}
    if (rule.misread is Misread.ROWS and known.infinite) or (rule.misread is Misread.MINUS_ROWS and below):
        return (), [Watch(source, Condition.ROWS, _dims_of(node))], {}
    if (rule.misread is Misread.MINUS and below) or (rule.misread is Misread.PLUS and above):
        return (source,), [], {}
    return (), [], {}


def _without_plus_inf(known: Range) -> Range:
    return replace(known, high=min(known.high, MAX))


def _dims_of(node: fx.Node) -> tuple[int, ...]:
    """Return the dimensions of a reduction or softmax: all of them, if the op names none."""
    dims = given(node, 1, "dim", ())
    found = (dims,) if isinstance(dims, int) else tuple(dims or ())  # type: ignore[arg-type]  # a list of them
    source = node.args[0]
    assert isinstance(source, fx.Node)
    assert isinstance(source.meta["val"], torch.Tensor)
    return found or tuple(range(source.meta["val"].dim()))

"""Joins the new rows of all KV caches into one output of the model, checked by one sum.

A step of a language model computes two new rows per layer. A rounding op, several summing ops and an output
for each of them cost more than the few numbers they process.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from torchport.targets.openvino.ir_graph import port_key, reached, reading_ops
from torchport.targets.openvino.library import openvino

# Joining fewer than this gains nothing.
_MANY = 8

_Key = tuple[str, int]


def join_rows(model: Any, made: Sequence[int], sums: int) -> tuple[list[Any], list[list[int]]]:
    """Join a model's new rows, grouped by shape; return its results and the old results that each one holds.

    Args:
        model: OpenVINO's model, changed in place.
        made: the indices of the results that are new rows.
        sums: how many of its last results are sums that show whether its values are small.
    """
    results = list(model.get_results())
    count = len(results) - sums
    numbers = [result.get_name() for result in results[count:]]
    alike: dict[tuple[str, str], list[int]] = {}
    for index in sorted(made):
        rows = results[index].input_value(0)
        kind = rows.get_element_type().get_type_name(), str(rows.get_partial_shape())
        alike.setdefault(kind, []).append(index)
    groups = [group for group in alike.values() if len(group) >= _MANY]
    joined = {index for group in groups for index in group}
    kept = [index for index in range(count) if index not in joined]
    ports = [results[index] for index in kept]
    opset = openvino().opset13
    for group in groups:
        rows = [results[index].input_value(0) for index in group]
        _sum_together(rows, numbers)
        first = opset.constant([0])
        ports.append(opset.result(opset.concat([opset.unsqueeze(row, first) for row in rows], 0)))
    return [*ports, *results[count:]], [*([index] for index in kept), *groups]


def _sum_together(rows: Sequence[Any], numbers: Collection[str]) -> None:
    """Replace sums over separately squared rows by one sum of squares over the concatenated rows.

    Rows in such a sum are finite if it is, so they are removed from the other sums.
    """
    known = {port_key(row): row for row in rows}
    squares = [node for row in rows for node in reading_ops(row.get_node()) if _square_of(node) in known]
    totals = {
        node.get_name(): node
        for square in squares
        for node in reached(square, lambda each: each.get_type_name() in ("Multiply", "Convert", "Add"))[1]
        if node.get_type_name() == "ReduceSum" and _ends_in(node, numbers)
    }
    summed: set[_Key] = set()
    for total in totals.values():
        keys = _squared(total)
        if keys is not None and known.keys() >= set(keys):
            _replace_sum(total, [known[key] for key in keys])
            summed.update(keys)
    _leave_out([known[key] for key in known if key in summed], numbers)


def _ends_in(node: Any, numbers: Collection[str]) -> bool:
    """Whether an op is used only for the given results."""
    ends = [each for each in reached(node, lambda _: True)[0] if not reading_ops(each)]
    return all(end.get_name() in numbers for end in ends)


def _square_of(node: Any) -> _Key | None:
    if node.get_type_name() != "Multiply":
        return None
    left, right = map(port_key, node.input_values())
    return left if left == right else None


def _squared(total: Any) -> list[_Key] | None:
    """Return the ports whose squares are added and then summed by `total`; None if it sums anything else."""
    found: list[_Key] = []
    waiting = [total.input_value(0).get_node()]
    while waiting:
        node = waiting.pop()
        key = _square_of(node)
        if key is not None:
            found.append(key)
        elif node.get_type_name() in ("Add", "Convert"):
            waiting.extend(port.get_node() for port in node.input_values())
        else:
            return None
    return found


def _replace_sum(total: Any, rows: Sequence[Any]) -> None:
    opset = openvino().opset13
    line = opset.constant([-1])
    joined = opset.concat([opset.reshape(row, line, False) for row in rows], 0)
    wide = joined if joined.get_element_type().get_type_name() == "f32" else opset.convert(joined, "f32")
    number = opset.reduce_sum(opset.multiply(wide, wide), opset.constant([0]), False)
    total.output(0).replace(number.output(0))


def _leave_out(rows: Sequence[Any], numbers: Collection[str]) -> None:
    """Remove rows from concatenations that are only summed, where something else is left to sum."""
    for row in rows:
        for node in reading_ops(row.get_node()):
            for joined in reached(node, lambda each: each.get_type_name() in ("Convert", "Reshape"))[1]:
                if joined.get_type_name() == "Concat" and _is_summed(joined, numbers):
                    _take_out(joined, row)


def _is_summed(joined: Any, numbers: Collection[str]) -> bool:
    users = reading_ops(joined)
    return all(user.get_type_name() == "ReduceSum" and _ends_in(user, numbers) for user in users)


def _take_out(joined: Any, row: Any) -> None:
    left = [port for port in joined.input_values() if port_key(_origin(port)) != port_key(row)]
    if left:
        joined.output(0).replace(openvino().opset13.concat(left, joined.get_attributes()["axis"]).output(0))


def _origin(port: Any) -> Any:
    while port.get_node().get_type_name() in ("Convert", "Reshape"):
        port = port.get_node().input_value(0)
    return port

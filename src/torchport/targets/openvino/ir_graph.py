"""Queries on the graph of an OpenVINO model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def port_key(port: Any) -> tuple[str, int]:
    """Return a key that identifies an op's output within the model."""
    return port.get_node().get_name(), port.get_index()


def readers(port: Any) -> list[Any]:
    """Return the op inputs that read an output."""
    return list(port.get_target_inputs())


def reading_ops(node: Any) -> list[Any]:
    """Return the ops that read an op's outputs."""
    return [target.get_node() for port in node.outputs() for target in readers(port)]


def reached(node: Any, goes_on: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Follow readers from an op transitively; return the ops where `goes_on` holds, and those it stops at."""
    seen, passed, others, waiting = {node.get_name()}, [], [], [node]
    while waiting:
        each = waiting.pop()
        if not goes_on(each):
            others.append(each)
            continue
        passed.append(each)
        for reader in reading_ops(each):
            if reader.get_name() not in seen:
                seen.add(reader.get_name())
                waiting.append(reader)
    return passed, others


def is_number(node: Any, number: int) -> bool:
    """Whether an op is a constant with this single value."""
    if node.get_type_name() != "Constant" or node.get_data().size != 1:
        return False
    return bool(node.get_data().item() == number)

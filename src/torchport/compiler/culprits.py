"""Finds the ops at fault for an island that cannot be built or is inaccurate."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torchport.compiler.island_trial import island_difference, run_artifact
from torchport.compiler.outline import Piece, spec_of
from torchport.errors import one_line
from torchport.records import Verdict
from torchport.structure import tensors_within
from torchport.targets import Island, Options, Target
from torchport.targets.target import GaveNaN, OutOfRange

# How many ops are built side by side at first, and how large their tensors may be together, as a build copies
# its weights. Fewer where one of them fails.
_MOST_TOGETHER = 64
_MOST_BYTES = 1 << 28


def find_culprits(
    piece: Piece,
    target: Target,
    options: Options,
    values: dict[fx.Node, object],
    alone: Callable[[fx.Node], Piece | None] = lambda node: None,
    *,
    ignore_values: bool = False,
) -> dict[fx.Node, Verdict]:
    """Return the verdicts on the ops of an island that fail on their own, with the operands they have in it.

    Args:
        piece: the island.
        target, options: what it is built for.
        values: the values of all nodes.
        alone: makes the island of one op, if it has open sizes; else None, and the values' sizes are used.
        ignore_values: whether to try only one of several calls that differ just in their tensors' values.
    """
    kinds = {node: _kind(node) if ignore_values else node for node in piece.ops}
    found: dict[object, Verdict] = {}
    together: list[fx.Node] = []
    for kind, node in {kind: node for node, kind in kinds.items()}.items():
        single = alone(node)
        if single is None:
            together += [node] if _has_tensors_alone(node, values) else []
            continue
        arguments: list[Any] = [values[source] for source in single.inputs]
        expected: list[Any] = [values[source] for source in single.outputs]
        with contextlib.suppress(OutOfRange):
            problem = _problem(node, single.island, target, options, arguments, expected)
            found |= {} if problem is None else {kind: problem}
    for batch in _batches(together, values):
        problems = _find_problems(batch, target, options, values)
        found |= {kinds[node]: problem for node, problem in problems.items()}
    return {node: found[kind] for node, kind in kinds.items() if kind in found}


def _batches(nodes: Sequence[fx.Node], values: dict[fx.Node, object]) -> Iterator[list[fx.Node]]:
    """Yield the ops in groups that are small enough to be built together; a large op is one by itself."""
    batch: list[fx.Node] = []
    held = 0
    for node in nodes:
        touched = [values[each] for each in (*node.all_input_nodes, node)]
        size = sum(tensor.nbytes for value in touched for tensor in tensors_within(value))
        if batch and (len(batch) == _MOST_TOGETHER or held + size > _MOST_BYTES):
            yield batch
            batch, held = [], 0
        batch.append(node)
        held += size
    if batch:
        yield batch


def _kind(node: fx.Node) -> str:
    """Return a key of a call: everything but its tensors' values."""
    described = fx.map_arg((node.args, node.kwargs), lambda source: _described(source.meta.get("val")))  # type: ignore[arg-type, return-value]  # texts in place of nodes
    return f"{node.target} {described!r} {_described(node.meta.get('val'))!r}"


def _described(value: object) -> object:
    if isinstance(value, (tuple, list)):
        return tuple(map(_described, value))
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return str(value)
    return f"{value.dtype} {tuple(value.shape)} {value.stride()}"


def _find_problems(
    nodes: Sequence[fx.Node], target: Target, options: Options, values: dict[fx.Node, object]
) -> dict[fx.Node, Verdict]:
    """Return the verdicts on ops that fail on their own, by halving: one build may show that none does."""
    try:
        problem = _problem_of(nodes, target, options, values)
        if problem is None:
            return {}
    except OutOfRange:  # one op's operand, which is not the others' fault
        problem = None
    if len(nodes) == 1:
        return {} if problem is None else {nodes[0]: problem}
    middle = len(nodes) // 2
    halves = (_find_problems(half, target, options, values) for half in (nodes[:middle], nodes[middle:]))
    return {node: verdict for half in halves for node, verdict in half.items()}


def _problem_of(
    nodes: Sequence[fx.Node], target: Target, options: Options, values: dict[fx.Node, object]
) -> Verdict | None:
    """Build and run ops side by side, each on its own operands, and return a verdict if any fails.

    Raises:
        OutOfRange: an operand is outside of what the device takes.
    """
    graph = fx.Graph()
    weights: dict[str, Any] = {}
    copies: dict[fx.Node, fx.Node] = {}
    inputs: list[fx.Node] = []
    for source in dict.fromkeys(source for node in nodes for source in node.all_input_nodes):
        if source.op != "get_attr":
            copies[source] = graph.placeholder(source.name)
            inputs.append(source)
        else:  # still a weight: a target may prepare it
            weights[str(source.target)] = values[source]
            copies[source] = graph.create_node("get_attr", str(source.target))
        copies[source].meta = dict(source.meta)
    results: list[fx.Node] = []
    expected: list[Any] = []
    for node in nodes:
        call = graph.node_copy(node, copies.__getitem__)
        call.meta = dict(node.meta)
        value = values[node]
        if isinstance(value, (tuple, list)):
            getitems = [user for user in node.users if isinstance(user.args[1], int)]
            expected += [value[getitem.args[1]] for getitem in getitems]  # type: ignore[index]  # integers
            results += [graph.node_copy(getitem, lambda source, call=call: call) for getitem in getitems]  # type: ignore[misc]
        else:
            expected.append(value)
            results.append(call)
    graph.output(tuple(results))
    arguments: list[Any] = [values[source] for source in inputs]
    island = Island(
        f"only_{nodes[0].name}",
        fx.GraphModule(weights, graph),
        tuple(spec_of(argument) for argument in arguments),
        tuple(spec_of(result) for result in expected),
    )
    return _problem(nodes[0], island, target, options, arguments, expected)


def _has_tensors_alone(node: fx.Node, values: dict[fx.Node, object]) -> bool:
    """Whether all that goes into an op and comes out of it is a tensor, or a list of tensors."""
    value = values[node]
    made = value if isinstance(value, (tuple, list)) else [value]
    given = [values[source] for source in node.all_input_nodes if source.op != "get_attr"]
    return all(isinstance(item, torch.Tensor) for item in (*given, *made))


def _problem(
    node: fx.Node,
    island: Island,
    target: Target,
    options: Options,
    arguments: list[torch.Tensor],
    expected: list[torch.Tensor],
) -> Verdict | None:
    """Build and run an island of one or several ops, and return a verdict if it fails or differs.

    Raises:
        OutOfRange: an operand is outside of what the device takes.
    """
    try:
        artifact = target.build(island, options)
        actual = run_artifact(artifact, island, target, options, arguments)
    except GaveNaN as error:
        actual = error.results
    except (OutOfRange, subprocess.TimeoutExpired):
        raise  # the caller who set the limit should see that it is exceeded
    except Exception as error:  # noqa: BLE001  # a device and its compiler may raise anything
        return Verdict(False, "build_failed", one_line(error), "report it to the target's maintainers")
    problem = island_difference(
        island, arguments, actual, expected, low_precision=target.is_low_precision(options)
    )
    if problem:
        return Verdict(False, "inaccurate", f"{node.target} differs from eager torch: {problem}")
    return None

"""Verdicts and islands → the coverage record: which ops a target takes, and why the rest stays."""

from __future__ import annotations

from torch import fx

from torchport.analysis import bytes_of, flops_of
from torchport.capture import module_path, source_line
from torchport.compiler.normalise import NormalGraph, is_op
from torchport.compiler.outline import Piece
from torchport.compiler.partition import Partition
from torchport.records import ConditionalOp, Coverage, IslandSummary, StayedOp, Verdict
from torchport.targets.size_terms import is_size

# The default remedy for each reason, for verdicts without one of their own.
_REMEDIES: dict[str, str] = {
    "no_lowering": "write it with ops that the target takes, or leave it to the host",
    "dtype": "cast to a dtype that the target takes, or leave it to the host",
    "argument": "call the op without it, or leave it to the host",
    "shape": "give the op another shape, or leave it to the host",
    "integer_range": "use smaller integers, or leave it to the host",
    "random": "call model.eval() first if this is dropout",
    "alias": "return a copy of it, with .clone()",
    "not_a_tensor": "compute it outside the model, or leave it to the host",
    "kept_by_option": "drop the option",
    "island_too_small": "lower min_island_size",
    "build_failed": "report it to the target's maintainers",
    "inaccurate": "report it to the target's maintainers",
    "slower": "pass speed_trial=False to run it on the target anyway",
}


def measure(
    model: str,
    target: str,
    ops_before: list[str],
    graph: NormalGraph,
    cut: Partition,
    pieces: dict[int, Piece],
    verdicts: dict[fx.Node, Verdict],
) -> Coverage:
    """Count the ops that the target takes, and list why the rest stays.

    Args:
        model, target: their names.
        ops_before: the ops before anything was folded.
        graph, cut, pieces, verdicts: the results of the earlier steps.
    """
    on_host = [
        _stayed(node, verdicts[node])
        for level in cut.levels
        for node in cut.host.get(level, [])
        if is_op(node)
    ]
    stayed = [row for row in on_host if row.reason != "alias"]
    conditional = [node for piece in pieces.values() for node in piece.ops if verdicts[node].detail]
    islands = tuple(_summary(piece) for _, piece in sorted(pieces.items()))
    flops_covered = sum(island.flops for island in islands)
    bytes_covered = sum(island.bytes for island in islands)
    return Coverage(
        model=model,
        target=target,
        ops_before=len(ops_before),
        unique_before=len(set(ops_before)),
        ops_remain=len(stayed),
        unique_remain=len({row.op for row in stayed}),
        transfers=sum(island.inputs + island.outputs for island in islands),
        flops=flops_covered + sum(row.flops for row in stayed),
        flops_covered=flops_covered,
        bytes=bytes_covered + sum(row.bytes for row in stayed),
        bytes_covered=bytes_covered,
        islands=islands,
        stayed=tuple(stayed),
        host_views=tuple(row for row in on_host if row.reason == "alias"),
        conditional=tuple(map(_conditional, conditional, [verdicts[node] for node in conditional])),
        inputs=_read(graph),
        outputs=_made(graph, verdicts),
    )


def _read(graph: NormalGraph) -> int:
    """Count the tensors that ops read and that may change between calls: inputs, and written weights."""
    nodes = graph.graph_module.graph.nodes
    changing = {node for node in nodes if node.op == "placeholder" and not is_size(node)} | set(graph.writes)
    return sum(any(is_op(user) for user in node.users) for node in changing)


def _made(graph: NormalGraph, verdicts: dict[fx.Node, Verdict]) -> int:
    """Count the tensors that ops compute and that are returned or written; views on the host do not count."""
    made = set()
    for node in graph.output.all_input_nodes:
        while node in verdicts and verdicts[node].reason == "alias":
            node = node.all_input_nodes[0]
        if node.op == "call_function" and not is_size(node):
            made.add(node)
    return len(made)


def _stayed(node: fx.Node, verdict: Verdict) -> StayedOp:
    return StayedOp(
        op=str(node.target),
        node=node.name,
        reason=verdict.reason,
        detail=verdict.detail,
        remedy=verdict.remedy or _REMEDIES[verdict.reason],
        module_path=module_path(node),
        source=source_line(node),
        flops=flops_of(node),
        bytes=bytes_of(node),
    )


def _conditional(node: fx.Node, verdict: Verdict) -> ConditionalOp:
    return ConditionalOp(str(node.target), node.name, verdict.detail, module_path(node), source_line(node))


def _summary(piece: Piece) -> IslandSummary:
    return IslandSummary(
        name=piece.island.name,
        ops=len(piece.ops),
        inputs=len(piece.inputs),
        outputs=len(piece.outputs),
        flops=sum(flops_of(node) for node in piece.ops),
        bytes=sum(bytes_of(node) for node in piece.ops),
    )

"""Graph + target → the plan: a verdict for every op, the islands, and their coverage."""

from __future__ import annotations

import operator
from dataclasses import dataclass

import torch
from torch import fx

from torchport.capture import module_path
from torchport.compiler.aliases import aliasing_nodes
from torchport.compiler.coverage import measure
from torchport.compiler.folding import fold
from torchport.compiler.graph_record import record_graph
from torchport.compiler.normalise import NormalGraph, count_ops, is_op
from torchport.compiler.open_sizes import OpenSizes
from torchport.compiler.open_verdicts import OpenVerdicts
from torchport.compiler.outline import Piece, has_known_strides, make_piece, outline
from torchport.compiler.partition import Partition, partition
from torchport.records import Coverage, ModelGraph, Verdict
from torchport.targets import Options, Target
from torchport.targets.node_checks import tensors_of


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Which op runs where.

    Args:
        graph: the graph.
        cut: which node runs where, and when.
        pieces: the islands by level.
        coverage: the coverage record of this plan.
        verdicts: the verdict on every op.
    """

    graph: NormalGraph
    cut: Partition
    pieces: dict[int, Piece]
    coverage: Coverage
    verdicts: dict[fx.Node, Verdict]

    def record_graph(self) -> ModelGraph:
        """Return the graph as a record: every op, what feeds it, and where it runs."""
        graph = self.graph.graph_module.graph
        model, target = self.coverage.model, self.coverage.target
        return record_graph(model, target, graph, self.pieces, self.verdicts)


class Planner:
    """Plans one graph for one target, repeatedly if islands turn out not to work.

    Args:
        name: the model's name.
        graph: the graph; its constants are folded, in place.
        target, options: what it is planned for.
        sizes: the open sizes, if there are any.
    """

    def __init__(
        self,
        name: str,
        graph: NormalGraph,
        target: Target,
        options: Options,
        sizes: OpenSizes | None = None,
    ) -> None:
        self.name = name
        self.target = target
        self.options = options
        self.graph = graph
        self.sizes = sizes
        self._ops_before = count_ops(graph.graph_module)
        fold(self.graph)
        self._open = None
        if sizes is None:
            target.prepare(self.graph.graph_module)
        else:
            self._open = OpenVerdicts(self.graph.graph_module, sizes, target, options)
        self._aliases = aliasing_nodes(self.graph)
        self._forced: dict[fx.Node, Verdict] = {}

    def force(self, node: fx.Node, verdict: Verdict) -> None:
        """Override the target's verdict on a node in all further plans."""
        self._forced[node] = verdict

    def alone(self, node: fx.Node) -> Piece | None:
        """Return an island of just one op, with open sizes; None if the graph has no open sizes."""
        if self.sizes is None:
            return None
        getitems = [user for user in node.users if user.target is operator.getitem]
        return make_piece(self.graph, f"only_{node.name}", [node, *getitems], self.sizes)

    def plan(self) -> Plan:
        """Collect the verdicts and partition the graph."""
        graph = self.graph.graph_module.graph
        verdicts = {node: self._verdict(node) for node in graph.nodes if is_op(node)}
        cut = partition(graph, verdicts, self.options.min_island_size)
        pieces = outline(self.graph, cut, self.sizes)
        coverage = measure(self.name, self.target.name, self._ops_before, self.graph, cut, pieces, verdicts)
        return Plan(self.graph, cut, pieces, coverage, verdicts)

    def _verdict(self, node: fx.Node) -> Verdict:
        if node in self._forced:
            return self._forced[node]
        if node in self._aliases:
            detail = f"the result shares memory with {self._aliases[node]}, which only the host can preserve"
            return Verdict(False, "alias", detail, "return a copy of it, with .clone()")
        known = {*self.target.device_types, "meta"}
        elsewhere = next((each.device for each in tensors_of(node) if each.device.type not in known), None)
        if elsewhere is not None:
            return Verdict(False, "argument", f"a tensor is on {elsewhere}", "move the model to the CPU")
        unknown = _known_at_run_time(node) if self._open is None else self._open.unknown(node)
        if unknown:
            return Verdict(False, "shape", unknown, "bound the shape, or compute it outside the model")
        name = str(node.target)
        if name in self.options.keep_ops or name.rpartition(".")[0] in self.options.keep_ops:
            return Verdict(False, "kept_by_option", f"the option keep_ops names {name}")
        path = module_path(node)
        for kept in self.options.keep_modules:
            if path == kept or path.startswith(kept + "."):
                return Verdict(False, "kept_by_option", f"the option keep_modules names {kept}")
        return self.target.verdict(node, self.options) if self._open is None else self._open.verdict(node)


def _known_at_run_time(node: fx.Node) -> str:
    """Return a message if a number, shape or layout of a node is known only at run time; empty otherwise."""
    for value in (*[source.meta.get("val") for source in node.all_input_nodes], node.meta.get("val")):
        for item in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                return "a number in it is known at run time only"
            if not isinstance(item, torch.Tensor):
                continue
            if any(not isinstance(size, int) for size in item.shape):
                return "a shape in it is known at run time only"
            if not has_known_strides(item):
                return "the memory layout of a tensor in it is known at run time only"
    return ""

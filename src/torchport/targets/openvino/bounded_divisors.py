"""Clamps the divisors of integer divisions to their proved sign, so that none can be 0 or -1.

Processors trap when they divide by 0, or the lowest integer by -1. The bounds of a divisor exclude both, but
they need not hold where its quotient is discarded (see `guarded_integers.py`), and a file may hold anything:
a model from one is refused unless its divisors are constants or clamped.
"""

from __future__ import annotations

import torch
from torch import fx

from torchport.targets.integer_bounds import bounds_of


def bound_divisors(graph_module: fx.GraphModule) -> None:
    """Clamp each computed divisor of a floor division to 1 and more, or to -2 and less, in place."""
    graph = graph_module.graph
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.floor_divide.default):
        divisor = node.args[1]
        if isinstance(divisor, fx.Node) and divisor.op != "get_attr":
            limits = (1,) if bounds_of(divisor)[0] > 0 else (None, -2)
            with graph.inserting_before(node):
                bounded = graph.call_function(torch.ops.aten.clamp.default, (divisor, *limits))
            bounded.meta.update(divisor.meta)
            node.update_arg(1, bounded)
    graph_module.recompile()

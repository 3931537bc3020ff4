"""Finds ops that ttnn can fuse into a convolution, a linear layer or a sum, before anything is lowered."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from torchport.targets.ttnn.lowering import arguments
from torchport.targets.ttnn.ops import RULES
from torchport.targets.ttnn.ops.arithmetic import activation_name
from torchport.targets.ttnn.ops.convolution import Followers
from torchport.targets.ttnn.ops.matrix import is_weight
from torchport.targets.ttnn.ttnn_program import Argument, Call, Make, Name

_BATCH_NORM = "aten._native_batch_norm_legit_no_training.default"
_CONVOLUTION = "aten.convolution.default"


@dataclass(frozen=True, slots=True, eq=False)
class Fusions:
    """The fusions in a graph.

    Args:
        along: for a node, what its lowering applies in addition.
        inside: for each fused node, the node that computes its value.
    """

    along: dict[fx.Node, Any] = field(default_factory=dict)
    inside: dict[fx.Node, fx.Node] = field(default_factory=dict)

    def activation(self, node: fx.Node) -> str | None:
        """Return ttnn's name of the activation fused into a node; None if there is none."""
        along = self.along.get(node)
        return along.activation if isinstance(along, Followers) else along


def applies(call: Call, activation: str) -> bool:
    """Whether a call applies an activation to its result."""
    return any(_names(item, activation) for _, item in call.kwargs)


def _names(argument: Argument, activation: str) -> bool:
    if isinstance(argument, Make):
        return any(_names(item, activation) for item in (*argument.args, *dict(argument.kwargs).values()))
    if isinstance(argument, tuple):
        return any(_names(item, activation) for item in argument)
    if isinstance(argument, Name):
        return argument == activation_name(activation)
    return argument == activation


def find_fusions(graph: fx.Graph) -> Fusions:
    """Return the fusions that are possible in a graph."""
    found = Fusions()
    for node in graph.nodes:
        rule = RULES.get(str(node.target))
        if rule is None or not rule.fuses:
            continue
        if str(node.target) == _CONVOLUTION:
            _follow_convolution(node, found)
        else:
            activation = _activation(node)
            if activation is not None:
                found.along[node] = _name_of(activation)
                found.inside[activation] = node
    return found


def _follow_convolution(node: fx.Node, found: Fusions) -> None:
    last, norm = node, None
    user = _only_user(node)
    if user is not None and str(user.target) == _BATCH_NORM and user.args[0] is node and _is_fixed(user):
        look = _only_user(user)
        if look is not None and look.target is operator.getitem and look.args[1] == 0:
            norm, last = user, look
            found.inside[user] = node
            found.inside[look] = node
    activation = _activation(last)
    if activation is not None:
        found.inside[activation] = node
    if norm is not None or activation is not None:
        name = _name_of(activation) if activation is not None else None
        found.along[node] = Followers(norm, name)


def _is_fixed(norm: fx.Node) -> bool:
    given = arguments(norm)
    names = ("running_mean", "running_var", "weight", "bias")
    return all(given[name] is None or is_weight(given[name]) for name in names)


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    return users[0] if len(users) == 1 and users[0].op == "call_function" else None


def _activation(node: fx.Node) -> fx.Node | None:
    user = _only_user(node)
    return user if user is not None and _name_of(user) else None


def _name_of(node: fx.Node) -> str:
    """Return ttnn's name of a fusable activation; empty for other ops."""
    rule = RULES.get(str(node.target))
    return rule.activation_of(node) if rule is not None else ""

"""OpenVINO's verdict on a node: what holds for all ops, then the op's own rule."""

from __future__ import annotations

import operator
from collections.abc import Mapping

import torch
from torch import fx

from torchport.records import SUPPORTED, Verdict
from torchport.targets.node_checks import check_integers, check_tensors
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.rules import Rule
from torchport.targets.value_ranges import EXACT
from torchport.torch_private import OpOverload


def verdict(node: fx.Node, rules: Mapping[str, Rule] = RULES, engine: str = "OpenVINO") -> Verdict:
    """Say whether an engine computes this node as torch does, by the rules of its ops."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return verdict(source, rules, engine)
    if not isinstance(node.target, OpOverload):
        return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
    name = str(node.target)
    rule = rules.get(name)
    if rule is None and torch.Tag.nondeterministic_seeded in node.target.tags:
        return Verdict(
            False, "random", f"{name} draws random numbers, which only torch can repeat",
            "call model.eval() first if this is dropout",
        )  # fmt: skip
    if rule is None:
        return Verdict(False, "no_lowering", f"{engine} has no lowering for {name} that equals torch's")
    return (
        check_tensors(node, rule.dtypes)
        or check_integers(node, EXACT)
        or (rule.check and rule.check(node))
        or SUPPORTED
    )

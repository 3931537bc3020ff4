"""OpenVINO's verdict on a node: what holds for all ops, then the op's own rule."""

from __future__ import annotations

import operator

import torch
from torch import fx

from torchport.records import SUPPORTED, Verdict
from torchport.targets.node_checks import check_integers, check_tensors
from torchport.targets.openvino.ops import RULES
from torchport.targets.value_ranges import EXACT
from torchport.torch_private import OpOverload


def verdict(node: fx.Node) -> Verdict:
    """Say whether OpenVINO computes this node as torch does."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return verdict(source)
    if not isinstance(node.target, OpOverload):
        return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
    name = str(node.target)
    rule = RULES.get(name)
    if rule is None and torch.Tag.nondeterministic_seeded in node.target.tags:
        return Verdict(
            False, "random", f"{name} draws random numbers, which only torch can repeat",
            "call model.eval() first if this is dropout",
        )  # fmt: skip
    if rule is None:
        return Verdict(False, "no_lowering", f"OpenVINO has no lowering for {name} that equals torch's")
    return (
        check_tensors(node, rule.dtypes)
        or check_integers(node, EXACT)
        or (rule.check and rule.check(node))
        or SUPPORTED
    )

"""ttnn's verdict on a node: what holds for all ops, then the op's own lowering, tried without values."""

from __future__ import annotations

import operator

import torch
from torch import fx

from torchport.records import SUPPORTED, Verdict
from torchport.targets.node_checks import check_integers, check_tensors
from torchport.targets.ttnn.lowering import torch_value
from torchport.targets.ttnn.ops import RULES
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.refusal import Refused
from torchport.targets.ttnn.ttnn_program import Crossing, DeviceTensor
from torchport.targets.ttnn.write import make_lowering
from torchport.targets.value_ranges import Bounds
from torchport.torch_private import OpOverload

INT32: Bounds = (-(2**31) + 1, 2**31 - 1)
WEIGHTS = "torchport_ttnn_weight"


def verdict(node: fx.Node, options: TtnnOptions) -> Verdict:
    """Say whether a program can compute this node as torch does."""
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, fx.Node)
        return verdict(source, options)
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
        return Verdict(False, "no_lowering", f"{name} has no lowering to ttnn")
    problem = check_tensors(node, rule.dtypes) or check_integers(node, INT32)
    if problem is not None:
        return problem
    try:
        _try(node, options)
    except Refused as refusal:
        return refusal.verdict
    return SUPPORTED


def _try(node: fx.Node, options: TtnnOptions) -> None:
    """Lower a node by itself, its inputs as they would be in the plainest form.

    Raises:
        Refused: it cannot be lowered.
    """
    lowering = make_lowering(options, _weight)
    for source in node.all_input_nodes:
        if source.op == "get_attr" or not isinstance(source.meta.get("val"), torch.Tensor):
            continue
        tensor = torch_value(source)
        shape = tuple(tensor.shape)
        dtype = lowering.device_dtype(source)
        crossing = Crossing(source.name, DeviceTensor(shape, dtype, "tile"), shape, str(tensor.dtype)[6:])
        lowering.put(source, lowering.builder.input(crossing))
    results = RULES[str(node.target)].lower(lowering, node)
    if not isinstance(results, list):
        lowering.put(node, results)


def _weight(node: fx.Node) -> torch.Tensor | None:
    """Return a weight's values if they are small and known, for lowerings that look at them."""
    found = node.meta.get(WEIGHTS)
    return found if isinstance(found, torch.Tensor) else torch_value(node).to("meta")

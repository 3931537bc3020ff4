"""Decides ttnn's verdict on a node by trying its lowering without values."""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.ttnn.lowering import torch_value
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.refusal import Refused
from torchport.targets.ttnn.rules import Rule
from torchport.targets.ttnn.ttnn_program import Crossing, DeviceTensor
from torchport.targets.ttnn.write import make_lowering

WEIGHTS = "torchport_ttnn_weight"


def check(node: fx.Node, rule: Rule, options: TtnnOptions) -> Verdict | None:
    """Lower a node in isolation, its inputs in tile layout and plain form; return the refusal, if any."""
    try:
        _try(node, rule, options)
    except Refused as refusal:
        return refusal.verdict
    return None


def _try(node: fx.Node, rule: Rule, options: TtnnOptions) -> None:
    lowering = make_lowering(options, _weight)
    for source in node.all_input_nodes:
        if source.op == "get_attr" or not isinstance(source.meta.get("val"), torch.Tensor):
            continue
        tensor = torch_value(source)
        shape = tuple(tensor.shape)
        dtype = lowering.device_dtype(source)
        crossing = Crossing(source.name, DeviceTensor(shape, dtype, "tile"), shape, str(tensor.dtype)[6:])
        lowering.put(source, lowering.builder.input(crossing))
    results = rule.lowered(lowering, node)
    if not isinstance(results, list):
        lowering.put(node, results)


def _weight(node: fx.Node) -> torch.Tensor | None:
    """Return a small weight's values, for lowerings that read them; other weights without values."""
    found = node.meta.get(WEIGHTS)
    return found if isinstance(found, torch.Tensor) else torch_value(node).to("meta")

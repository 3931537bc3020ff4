"""Ops that look elements up by index. That the index is in bounds is proved or checked before."""

from __future__ import annotations

import torch
from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, shape, takes, value_of

takes("index_select.default", "fi")
takes("tril.default triu.default", "fib")


@checked("embedding.default", "fi")
def _embedding(node: fx.Node) -> Verdict | None:
    if value_of(node).dtype != torch.float32:
        return argument("the table does not hold floats")
    return None


@checked("gather.default", "fi")
def _gather(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() == 0 or value_of(node, 2).dim() == 0:
        return shape("a single number is looked up in")
    return None


@checked("index.Tensor", "fi")
def _index(node: fx.Node) -> Verdict | None:
    indices = node.args[1]
    assert isinstance(indices, (list, tuple))
    given = [item for item in indices if isinstance(item, fx.Node)]
    if any(item.meta["val"].dtype == torch.bool for item in given):
        return argument("a mask is used as index: the result's shape depends on it")
    places = [place for place, item in enumerate(indices) if isinstance(item, fx.Node)]
    if places != list(range(places[0], places[0] + len(places))):
        return argument("the indices are not next to each other")
    return None

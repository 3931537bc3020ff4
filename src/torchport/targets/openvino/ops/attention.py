"""Softmax and attention."""

from __future__ import annotations

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.rules import argument, checked, given, value_of


@checked("_softmax.default _log_softmax.default", "f")
def _softmax(node: fx.Node) -> Verdict | None:
    if node.args[2]:
        return argument("half_to_float is for devices with half precision")
    return None


@checked("scaled_dot_product_attention.default", "fb")
def _attention(node: fx.Node) -> Verdict | None:
    if given(node, 4, "dropout_p", 0.0) != 0.0:
        return Verdict(False, "random", "dropout draws random numbers", "call model.eval() first")
    if given(node, 5, "is_causal", False) and given(node, 3, "attn_mask") is not None:
        return argument("a mask is given besides is_causal")
    if given(node, 7, "enable_gqa", False):
        return argument("enable_gqa repeats heads inside the op", "repeat keys and values before it")
    if value_of(node).dim() < 3:
        return Verdict(False, "shape", "attention on a single matrix")
    return None

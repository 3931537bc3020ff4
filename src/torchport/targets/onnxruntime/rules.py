"""Which ATen ops onnxruntime computes as torch does: the rules that it shares with OpenVINO, and its own.

torch's exporter makes standard ONNX ops of them. Like OpenVINO's, onnxruntime's kernels may take NaN for a
number (relu, maximum, max pooling) and are watched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import fx

from torchport.records import Verdict
from torchport.targets.onnxruntime.quantized import GRIDS
from torchport.targets.openvino.ops import RULES as SHARED
from torchport.targets.openvino.rules import Misread, Rule, argument, shape, value_of
from torchport.targets.rule_target import Check, Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule

_ATTENTION = "aten.scaled_dot_product_attention.default"
_ROUNDED = "aten.fake_quantize_per_tensor_affine_cachemask.default"


def _attention(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() != 4:
        return shape("attention is exported with a batch and heads only")
    return None


def _on_a_grid(node: fx.Node) -> Verdict | None:
    low, high = node.args[3:5]
    if (low, high) not in GRIDS:
        return argument(f"ONNX has no integers from {low} to {high}", "quantize to eight bits")
    return None


def _both(first: Check | None, second: Check) -> Check:
    return lambda node: (first and first(node)) or second(node)


@dataclass(frozen=True, slots=True)
class OnnxRule(Rule):
    """The same, in float32 alone: few of onnxruntime's CPU kernels compute in half precision."""

    KINDS: ClassVar[Kinds] = {**BaseRule.KINDS, "q": Rule.KINDS["q"]}


RULES: Rules[OnnxRule] = Rules(
    {
        name: OnnxRule(rule.kinds, rule.floats, rule.nan, rule.misread, check=rule.check)
        for name, rule in SHARED.items()
    }
)
# Attention is written out: where a mask leaves nothing, onnxruntime's softmax is uniform; torch gives 0.
RULES[_ATTENTION] = replace(
    RULES[_ATTENTION], misread=Misread.MASK_ROWS, check=_both(SHARED[_ATTENTION].check, _attention)
)
RULES[_ROUNDED] = replace(RULES[_ROUNDED], check=_both(SHARED[_ROUNDED].check, _on_a_grid))

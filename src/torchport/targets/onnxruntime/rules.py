"""Which ATen ops onnxruntime computes as torch does: the rules that it shares with OpenVINO, and its own.

torch's exporter makes standard ONNX ops of them. Like OpenVINO's, onnxruntime's kernels may take NaN for a
number (relu, maximum, max pooling) and are watched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import fx

from torchport.records import Verdict
from torchport.targets.openvino.ops import RULES as SHARED
from torchport.targets.openvino.rules import Misread, Rule, shape, value_of
from torchport.targets.rule_target import Check, Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule

_ATTENTION = "aten.scaled_dot_product_attention.default"


def _attention(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() != 4:
        return shape("attention is exported with a batch and heads only")
    return None


def _both(first: Check | None, second: Check) -> Check:
    return lambda node: (first and first(node)) or second(node)


@dataclass(frozen=True, slots=True)
class OnnxRule(Rule):
    """The same, in float32 alone: few of onnxruntime's CPU kernels compute in half precision."""

    KINDS: ClassVar[Kinds] = BaseRule.KINDS


RULES: Rules[OnnxRule] = Rules(
    {
        name: OnnxRule(rule.kinds.replace("q", ""), rule.floats, rule.nan, rule.misread, check=rule.check)
        for name, rule in SHARED.items()
        if "fake_quantize" not in name  # the exporter has none for it
    }
)
# Attention is written out: where a mask leaves nothing, onnxruntime's softmax is uniform; torch gives 0.
RULES[_ATTENTION] = replace(
    RULES[_ATTENTION], misread=Misread.MASK_ROWS, check=_both(SHARED[_ATTENTION].check, _attention)
)

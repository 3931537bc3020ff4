"""The ATen ops that onnxruntime computes as torch does: the rules shared with OpenVINO, and its own.

torch's exporter converts them to standard ONNX ops. Like OpenVINO's, some of onnxruntime's kernels lose NaN
(relu, maximum, max pooling) and are watched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from torch import fx

from torchport.records import Verdict
from torchport.targets.onnxruntime.quantized import QUANTIZED_RANGES
from torchport.targets.openvino.ops import RULES as SHARED
from torchport.targets.openvino.rules import Misread, Rule, argument, shape, value_of
from torchport.targets.rule_target import Check, Kinds, Rules
from torchport.targets.rule_target import Rule as BaseRule

_ATTENTION = "aten.scaled_dot_product_attention.default"
_FAKE_QUANTIZE = "aten.fake_quantize_per_tensor_affine_cachemask.default"


def _attention(node: fx.Node) -> Verdict | None:
    if value_of(node).dim() != 4:
        return shape("attention is exported only with a batch and heads (4 dimensions)")
    return None


def _check_quantized_range(node: fx.Node) -> Verdict | None:
    low, high = node.args[3:5]
    if (low, high) not in QUANTIZED_RANGES:
        return argument(f"ONNX has no integer type with the range {low} to {high}", "quantize to eight bits")
    return None


def _both(first: Check | None, second: Check) -> Check:
    return lambda node: (first and first(node)) or second(node)


@dataclass(frozen=True, slots=True)
class OnnxRule(Rule):
    """OpenVINO's rule, limited to float32: few of onnxruntime's CPU kernels compute in half precision."""

    KINDS: ClassVar[Kinds] = {**BaseRule.KINDS, "q": Rule.KINDS["q"]}


RULES: Rules[OnnxRule] = Rules(
    {
        name: OnnxRule(rule.kinds, rule.floats, rule.nan, rule.misread, check=rule.check)
        for name, rule in SHARED.items()
    }
)
# Attention is decomposed: for a fully masked row, onnxruntime's softmax is uniform, and torch returns 0.
RULES[_ATTENTION] = replace(
    RULES[_ATTENTION], misread=Misread.MASK_ROWS, check=_both(SHARED[_ATTENTION].check, _attention)
)
RULES[_FAKE_QUANTIZE] = replace(
    RULES[_FAKE_QUANTIZE], check=_both(SHARED[_FAKE_QUANTIZE].check, _check_quantized_range)
)

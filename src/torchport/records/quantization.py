"""How a model is quantized, layer by layer and with reasons, and what was measured of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from torchport.records.record import Record

# What a layer computes in. `weight_only`: its weights are int8, its arithmetic is in floats.
Precision = Literal["int8", "weight_only", "bfloat16", "float16", "float"]
HALF_PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float16")
PRECISIONS: tuple[Precision, ...] = ("int8", "weight_only", *HALF_PRECISIONS, "float")
# Why a layer has its precision.
#   default          the method's own
#   sensitive        in int8 (or int4) the model misses its accuracy budget, and this layer is a worst one;
#                    or it changes the results most in int4, and there is room for eight bits
#   slower           quantized it was measured to be slower on this machine
#   no_kernel        the engine computes it in floats all the same, as its runtime graph says
#   kept_by_option   an override or a plan says so
#   not_supported    the method has no such form of it
PrecisionReason = Literal["default", "sensitive", "slower", "no_kernel", "kept_by_option", "not_supported"]


@dataclass(frozen=True, slots=True)
class LayerPlan(Record):
    """What one layer computes in, and why.

    Args:
        name: the module's path, with the op where a module calls several, such as `layer1.0` or `block/add`.
        op: the op, such as `aten.conv2d.default`.
        precision: what it computes in.
        reason: why.
        detail: the measurement or option behind the reason, in a sentence.
        bits: of its weights.
        group_size: with four bits, how many inputs share a scale; None: as many as the options say.
    """

    name: str
    op: str
    precision: Precision
    reason: PrecisionReason = "default"
    detail: str = ""
    bits: int = 8
    group_size: int | None = None


@dataclass(frozen=True, slots=True)
class QuantizationPlan(Record):
    """What each layer of a model computes in; JSON that can be edited and given back.

    Args:
        model: the model's name.
        method: `ptq`, `qat`, `weight_only` or `dynamic`.
        target: the target that it was made for.
        layers: in the order of the graph.
    """

    schema: ClassVar[str] = "torchport.quantization_plan/1"

    model: str
    method: str
    target: str
    layers: tuple[LayerPlan, ...]

    def count(self, precision: Precision) -> int:
        """Return how many layers compute in a precision."""
        return Counter(layer.precision for layer in self.layers)[precision]

    def precision_of(self, name: str) -> Precision:
        """Return what a layer computes in.

        Raises:
            KeyError: there is no such layer.
        """
        return {layer.name: layer.precision for layer in self.layers}[name]


@dataclass(frozen=True, slots=True)
class LayerReport(Record):
    """What was measured of a layer, on data that were held back from calibration.

    SQNR is the ratio of a signal's power to that of its quantization noise, in decibels.

    Args:
        name, op, precision, reason: as in the plan.
        sqnr_isolated: of the layer in int8 on the inputs that the float model gives it.
        sqnr: of its result in the quantized model, with what the layers before it add.
        pcc: of its result in the quantized model.
        low, high: the range that its input was seen to have, in floats.
        range_low, range_high: the range that its input is quantized in.
        clipped: which share of its inputs lies outside of that.
        seconds_float, seconds: what it took on this machine, before and after.
    """

    name: str
    op: str
    precision: Precision
    reason: PrecisionReason
    sqnr_isolated: float | None = None
    sqnr: float | None = None
    pcc: float | None = None
    low: float | None = None
    high: float | None = None
    range_low: float | None = None
    range_high: float | None = None
    clipped: float | None = None
    seconds_float: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class QuantizationReport(Record):
    """What became of a model.

    Args:
        model, method, target: as in the plan.
        layers: worst first.
        calibrated_on, judged_on: how many items of the calibration data went where.
        pcc, sqnr: of the model's results, against the float model's, on held-back data; the worst result's.
        score_float, score: what the evaluation function said of either.
        bytes_float, bytes: of the weights, before and after.
        seconds_float, seconds: of a call on the target, before and after, where it was measured.
        note: what else there is to say.
    """

    schema: ClassVar[str] = "torchport.quantization_report/1"

    model: str
    method: str
    target: str
    layers: tuple[LayerReport, ...]
    calibrated_on: int
    judged_on: int
    pcc: float | None = None
    sqnr: float | None = None
    score_float: float | None = None
    score: float | None = None
    bytes_float: int = 0
    bytes: int = 0
    seconds_float: float | None = None
    seconds: float | None = None
    note: str = ""

"""How a model is quantized, layer by layer with reasons, and the measurements of the result."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Literal

from torchport.records.record import Record

# The precision of a layer. `weight_only`: its weights are quantized, its arithmetic is in floating point.
Precision = Literal["int8", "weight_only", "bfloat16", "float16", "float"]
HALF_PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float16")
PRECISIONS: tuple[Precision, ...] = ("int8", "weight_only", *HALF_PRECISIONS, "float")
# Why a layer has its precision.
#   default          the method's default
#   sensitive        in int8 (or int4) the model misses its accuracy budget, and this layer is one of the
#                    worst; or it changes the results most in int4, and the size limit allows eight bits
#   slower           it was measured to be slower when quantized, on this machine
#   no_kernel        the engine computes it in floating point anyway, according to its runtime graph
#   kept_by_option   an override or a plan says so
#   not_supported    the method cannot quantize it
PrecisionReason = Literal["default", "sensitive", "slower", "no_kernel", "kept_by_option", "not_supported"]


@dataclass(frozen=True, slots=True)
class LayerPlan(Record):
    """The precision of one layer, and the reason for it.

    Args:
        name: the module's path, with the op if the module calls several, such as `layer1.0` or `block/add`.
        op: the op, such as `aten.conv2d.default`.
        precision: the precision that it computes in.
        reason: why it has this precision.
        detail: the measurement or option behind the reason, in a sentence.
        bits: the number of bits of its weights.
        group_size: with four bits, how many inputs share a scale; None for the value in the options.
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
    """The precision of each layer of a model; its JSON can be edited and passed back in.

    Args:
        model: the model's name.
        method: `ptq`, `qat`, `weight_only` or `dynamic`.
        target: the target that it was made for.
        layers: the layers, in the order of the graph.
    """

    schema: ClassVar[str] = "torchport.quantization_plan/1"

    model: str
    method: str
    target: str
    layers: tuple[LayerPlan, ...]

    def count(self, precision: Precision) -> int:
        """Return how many layers compute in the given precision."""
        return Counter(layer.precision for layer in self.layers)[precision]

    def precision_of(self, name: str) -> Precision:
        """Return the precision of a layer.

        Raises:
            KeyError: there is no such layer.
        """
        return {layer.name: layer.precision for layer in self.layers}[name]


@dataclass(frozen=True, slots=True)
class LayerReport(Record):
    """The measurements of a layer, on data that were held out from calibration.

    SQNR is the ratio of a signal's power to that of its quantization noise, in decibels.

    Args:
        name, op, precision, reason: as in the plan.
        sqnr_isolated: the SQNR of the layer alone in int8, on the float model's inputs to it.
        sqnr: the SQNR of its result in the quantized model, the noise of preceding layers included.
        pcc: the PCC of its result in the quantized model.
        low, high: the observed range of its float input.
        range_low, range_high: the range that its input is quantized to.
        clipped: the share of its input values outside that range.
        seconds_float, seconds: its time on this machine, before and after.
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
    """The measurements of a quantized model.

    Args:
        model, method, target: as in the plan.
        layers: the layers, the worst first.
        calibrated_on, judged_on: how many items of the data were used to calibrate, and held out to evaluate.
        pcc, sqnr: the accuracy of the model's worst result, compared with the float model on held-out data.
        score_float, score: what the evaluation function returned for the float and the quantized model.
        bytes_float, bytes: the size of the weights, before and after.
        seconds_float, seconds: the time of a call on the target, before and after, if it was measured.
        note: further remarks.
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

"""The options of `torchport.quantize`, validated, and its accuracy budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from torch import nn

from torchport.errors import QuantizationError, nearest
from torchport.records.quantization import PRECISIONS, Precision, QuantizationPlan

Method = Literal["ptq", "qat", "dynamic", "weight_only"]
METHODS: tuple[Method, ...] = get_args(Method)
Ranges = Literal["mean_min_max", "min_max", "quantile", "histogram"]
Granularity = Literal["per_channel", "per_tensor"]
Activations = Literal["auto", "symmetric", "asymmetric"]
RangeReduction = Literal["auto", "yes", "no"]
Half = Literal["bfloat16", "float16"]

_CHOICES: dict[str, tuple[object, ...]] = {
    "ranges": get_args(Ranges),
    "weights": get_args(Granularity),
    "activations": get_args(Activations),
    "bits": (4, 8),
    "range_reduction": get_args(RangeReduction),
    "half": (None, *get_args(Half)),
}
# The methods that use an option; options not listed apply to all methods.
_USED_BY: dict[str, tuple[Method, ...]] = {
    "ranges": ("ptq", "qat"),
    "weights": ("ptq", "qat", "dynamic"),
    "activations": ("ptq", "qat"),
    "bias_correction": ("ptq",),
    "smooth_quant": ("ptq",),
    "equalize": ("ptq", "qat"),
    "range_reduction": ("ptq", "qat", "dynamic"),
    "half": ("ptq", "dynamic"),
    "bits": ("weight_only",),
    "group_size": ("weight_only",),
    "symmetric_weights": ("weight_only",),
    "size_ratio": ("weight_only",),
}


@dataclass(frozen=True)
class QuantizationOptions:
    """How a model is quantized.

    Args:
        ranges: how activation ranges are estimated: `mean_min_max` (mean of each item's minimum and maximum),
            `min_max` (over all items), `quantile` (clipping outliers), or `histogram` (minimizing the error).
        weights: whether weight scales are per output channel or per tensor.
        activations: `symmetric` around 0, `asymmetric`, or `auto` to suit the model.
        bias_correction: whether biases are adjusted for the mean quantization error of their layers.
        smooth_quant: whether activation outliers are moved into weights; None: if the model has attention.
        equalize: whether channel ranges between two layers of the same kind are equalized first, as measured
            on the calibration data.
        bits: bits per weight with `weight_only`: 8, or 4, packed two to a byte.
        group_size: how many inputs share a scale in 4-bit weights; in 8-bit weights scales are per output.
        size_ratio: with 4 bits and data, the model's file size limit as a fraction of its size in bfloat16.
            Within it, the most sensitive layers get 8 bits or groups of half the size, and the least
            sensitive ones groups of twice the size; 0: all groups have `group_size`.
        symmetric_weights: whether weights have no zero point, with `weight_only`.
        range_reduction: whether weights use 7 bits, to avoid saturation on x86 processors without VNNI;
            `auto` depends on the processor.
        half: the fallback precision of layers with weights that must not compute in int8: `bfloat16`,
            `float16`, or None for float32.
        overrides: precisions by pattern, a glob of module paths or ops, such as `{"head.*": "float",
            "aten.add.*": "float"}`. The last match wins.
        plan: a plan, possibly edited, whose precisions are applied unchanged.
        samples: the maximum number of calibration items used.
        hold_back: the fraction of them held back for evaluation.
    """

    ranges: Ranges = "mean_min_max"
    weights: Granularity = "per_channel"
    activations: Activations = "auto"
    bias_correction: bool = True
    smooth_quant: bool | None = None
    equalize: bool = False
    bits: Literal[4, 8] = 8
    group_size: int = 64
    size_ratio: float = 0.3
    symmetric_weights: bool = True
    range_reduction: RangeReduction = "auto"
    half: Half | None = None
    overrides: Mapping[str, Precision] = field(default_factory=dict)
    plan: QuantizationPlan | None = None
    samples: int = 300
    hold_back: float = 0.2

    def __post_init__(self) -> None:
        """Reject invalid values."""
        for name, choices in _CHOICES.items():
            given = getattr(self, name)
            if not any(given == choice and type(given) is type(choice) for choice in choices):
                raise _refusal(
                    f"{name} is {getattr(self, name)!r}", f"choose one of {', '.join(map(repr, choices))}"
                )
        if not isinstance(self.overrides, Mapping):
            raise _refusal(f"overrides is {self.overrides!r}", 'give a dict, such as {"head.*": "float"}')
        for pattern, precision in self.overrides.items():
            if precision not in PRECISIONS:
                raise _refusal(
                    f"the override {pattern!r} is {precision!r}", f"choose one of {', '.join(PRECISIONS)}"
                )
        check_group_size(self.group_size, "group_size")
        if not isinstance(self.size_ratio, (int, float)) or not 0 <= self.size_ratio <= 1:
            raise _refusal(
                f"size_ratio is {self.size_ratio!r}", "give a share of bfloat16's size between 0 and 1"
            )
        for name in ("bias_correction", "equalize", "symmetric_weights"):
            if not isinstance(getattr(self, name), bool):
                raise _refusal(f"{name} is {getattr(self, name)!r}", "choose True or False")
        if self.smooth_quant is not None and not isinstance(self.smooth_quant, bool):
            raise _refusal(f"smooth_quant is {self.smooth_quant!r}", "choose True, False or None")
        if self.plan is not None and not isinstance(self.plan, QuantizationPlan):
            raise _refusal("plan is not a QuantizationPlan", "read it with QuantizationPlan.from_json")
        for layer in self.plan.layers if self.plan is not None else ():
            if layer.bits not in _CHOICES["bits"]:
                raise _refusal(
                    f"the plan has {layer.bits} bits for the layer {layer.name!r}", "choose 4 or 8"
                )
        if not isinstance(self.samples, int) or self.samples < 2:
            raise _refusal(
                f"samples is {self.samples!r}", "one item calibrates and one evaluates: give at least 2"
            )
        if not isinstance(self.hold_back, (int, float)) or not 0 < self.hold_back < 1:
            raise _refusal(f"hold_back is {self.hold_back!r}", "give a share between 0 and 1")


def make_options(given: QuantizationOptions | Mapping[str, object] | None) -> QuantizationOptions:
    """Return options from a mapping, rejecting unknown keys.

    Raises:
        QuantizationError: a key is unknown, or a value is invalid.
    """
    if isinstance(given, QuantizationOptions):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise _refusal(f"they are a {type(given).__name__}", "give QuantizationOptions, or a dict")
    known = [entry.name for entry in fields(QuantizationOptions)]
    for key in given or {}:
        if key not in known:
            raise _refusal(f"unknown option {key!r}", nearest(str(key), known))
    return QuantizationOptions(**dict(given or {}))  # type: ignore[arg-type]  # checked in __post_init__


def check_group_size(given: object, what: str) -> None:
    """Reject group sizes that do not pack into whole bytes of two weights.

    Raises:
        QuantizationError: it is not a positive even number.
    """
    if not isinstance(given, int) or given < 2 or given % 2:
        raise _refusal(f"{what} is {given!r}", "give an even number, such as 32, 64 or 128")


def check_applicable(options: QuantizationOptions, method: Method) -> None:
    """Reject options that a method would ignore.

    Raises:
        QuantizationError: names the option, and the methods that use it.
    """
    for entry in fields(QuantizationOptions):
        users = _USED_BY.get(entry.name, METHODS)
        value = getattr(options, entry.name)
        if method in users or value == entry.default or value is False:
            continue
        raise _refusal(
            f"{method} does not use the option {entry.name}, which is {value!r}",
            f"leave it out, or use method={' or '.join(repr(each) for each in users)}",
        )


def _refusal(what: str, remedy: str) -> QuantizationError:
    return QuantizationError(what, where="the options of quantize", remedy=remedy)


@dataclass(frozen=True)
class AccuracyBudget:
    """How much accuracy the quantized model may lose. Layers go back to floats until it is met.

    Args:
        evaluate: returns a model's score, the higher the better; called on the float model once.
        max_drop: how much lower the quantized model's score may be.
        pcc, sqnr: without an evaluation function, the minimum PCC or SQNR (in decibels) of the results
            compared with the float model's, on held-back data.
    """

    evaluate: Callable[[nn.Module], float] | None = None
    max_drop: float = 0.0
    pcc: float | None = None
    sqnr: float | None = None

    def __post_init__(self) -> None:
        """Reject a budget without a criterion, or with conflicting ones."""
        if self.evaluate is not None and (self.pcc is not None or self.sqnr is not None):
            raise _budget_refusal("an evaluation function and a PCC or SQNR are given", "give one of them")
        if self.evaluate is None and self.pcc is None and self.sqnr is None:
            raise _budget_refusal("no criterion is given", "give evaluate and max_drop, or pcc, or sqnr")
        if self.evaluate is not None and not callable(self.evaluate):
            raise _budget_refusal(f"evaluate is {self.evaluate!r}", "give a function that takes a model")
        if not _is_number(self.max_drop) or not self.max_drop >= 0:
            raise _budget_refusal(f"max_drop is {self.max_drop!r}", "give 0 or more")
        if self.pcc is not None and not (_is_number(self.pcc) and 0 < self.pcc <= 1):
            raise _budget_refusal(f"pcc is {self.pcc!r}", "give a number between 0 and 1")
        if self.sqnr is not None and not (_is_number(self.sqnr) and self.sqnr == self.sqnr):
            raise _budget_refusal(f"sqnr is {self.sqnr!r}", "give a number of decibels")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _budget_refusal(what: str, remedy: str) -> QuantizationError:
    return QuantizationError(what, where="the accuracy budget of quantize", remedy=remedy)


# By default the results must match the float model's, by the PCC that device makers quote.
DEFAULT_BUDGET = AccuracyBudget(pcc=0.99)

"""The options of `torchport.quantize`, checked, and what accuracy is asked for."""

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
# The methods that heed an option; all heed those that are not named.
_HEEDED_BY: dict[str, tuple[Method, ...]] = {
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
        ranges: how ranges are found: `mean_min_max` (the mean of each item's), `min_max` (of all items),
            `quantile` (without the outermost values), or `histogram` (with the least error).
        weights: whether weights have a scale for each output channel or one for all.
        activations: `symmetric` around 0, `asymmetric`, or what suits the model.
        bias_correction: whether biases take up the mean error of their layers.
        smooth_quant: whether outliers of activations are moved into weights; None: where there is attention.
        equalize: whether channels between two layers of a kind are aligned first, as large as they are on the
            calibration data.
        bits: of weights, with `weight_only`: 8, or 4, two of them in a byte.
        group_size: how many inputs share a scale where weights have 4 bits; with 8 each output has one.
        size_ratio: with 4 bits and data, which share of its file in bfloat16 the model's may take. The layers
            that change the results most get 8 bits, or groups of half the size, and those that change them
            least groups of twice the size, as far as that permits it; 0: all groups have `group_size`.
        symmetric_weights: whether weights have no zero point, with `weight_only`.
        range_reduction: whether weights use 7 bits, against saturation on x86 processors without VNNI;
            `auto` looks at the processor.
        half: what layers with weights compute in that must not compute in eight bits: `bfloat16`, `float16`,
            or None for float32.
        overrides: precisions by pattern: a glob of module paths or of ops, such as `{"head.*": "float",
            "aten.add.*": "float"}`. The last that matches counts.
        plan: a plan, perhaps edited: its precisions are taken as they are.
        samples: how many items of the calibration data are used at most.
        hold_back: which share of them is kept for judging.
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
        """Refuse values that mean nothing."""
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
            raise _refusal("plan is no QuantizationPlan", "read it with QuantizationPlan.from_json")
        for layer in self.plan.layers if self.plan is not None else ():
            if layer.bits not in _CHOICES["bits"]:
                raise _refusal(
                    f"the plan has {layer.bits} bits for the layer {layer.name!r}", "choose 4 or 8"
                )
        if not isinstance(self.samples, int) or self.samples < 2:
            raise _refusal(
                f"samples is {self.samples!r}", "one item calibrates and one judges: give at least 2"
            )
        if not isinstance(self.hold_back, (int, float)) or not 0 < self.hold_back < 1:
            raise _refusal(f"hold_back is {self.hold_back!r}", "give a share between 0 and 1")


def make_options(given: QuantizationOptions | Mapping[str, object] | None) -> QuantizationOptions:
    """Return options of a mapping; an unknown key is refused.

    Raises:
        QuantizationError: a key is unknown, or a value means nothing.
    """
    if isinstance(given, QuantizationOptions):
        return given
    if given is not None and not isinstance(given, Mapping):
        raise _refusal(f"they are a {type(given).__name__}", "give QuantizationOptions, or a dict")
    known = [entry.name for entry in fields(QuantizationOptions)]
    for key in given or {}:
        if key not in known:
            raise _refusal(f"there is no option {key!r}", nearest(str(key), known))
    return QuantizationOptions(**dict(given or {}))  # type: ignore[arg-type]  # checked by itself


def check_group_size(given: object, what: str) -> None:
    """Refuse groups that bytes of two weights cannot be divided into.

    Raises:
        QuantizationError: it is no even number.
    """
    if not isinstance(given, int) or given < 2 or given % 2:
        raise _refusal(f"{what} is {given!r}", "give an even number, such as 32, 64 or 128")


def check_heeded(options: QuantizationOptions, method: Method) -> None:
    """Refuse options that a method would ignore.

    Raises:
        QuantizationError: names the option, and the methods that heed it.
    """
    for entry in fields(QuantizationOptions):
        heeding = _HEEDED_BY.get(entry.name, METHODS)
        value = getattr(options, entry.name)
        if method in heeding or value == entry.default or value is False:
            continue
        raise _refusal(
            f"{method} has no use for the option {entry.name}, and it is {value!r}",
            f"leave it out, or use method={' or '.join(repr(each) for each in heeding)}",
        )


def _refusal(what: str, remedy: str) -> QuantizationError:
    return QuantizationError(what, where="the options of quantize", remedy=remedy)


@dataclass(frozen=True)
class AccuracyBudget:
    """How far the quantized model may be off. Layers go back to floats until it holds.

    Args:
        evaluate: gives a model's score, the higher the better; called on the float model once.
        max_drop: how much lower the quantized model's score may be.
        pcc, sqnr: without an evaluation function, what the results' PCC or SQNR (in decibels) with the float
            model's must reach on data that are held back.
    """

    evaluate: Callable[[nn.Module], float] | None = None
    max_drop: float = 0.0
    pcc: float | None = None
    sqnr: float | None = None

    def __post_init__(self) -> None:
        """Refuse a budget that says nothing, or two things."""
        if self.evaluate is not None and (self.pcc is not None or self.sqnr is not None):
            raise _budget_refusal("an evaluation function and a PCC or SQNR are given", "give one of them")
        if self.evaluate is None and self.pcc is None and self.sqnr is None:
            raise _budget_refusal("nothing is asked for", "give evaluate and max_drop, or pcc, or sqnr")
        if self.evaluate is not None and not callable(self.evaluate):
            raise _budget_refusal(f"evaluate is {self.evaluate!r}", "give a function of a model")
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


# What is asked for if nothing is: the results are the float model's, by the PCC that device makers quote.
DEFAULT_BUDGET = AccuracyBudget(pcc=0.99)

"""`torchport.quantize`: a model and calibration data → a quantized model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from torchport import targets
from torchport.errors import QuantizationError, nearest
from torchport.quantization.calibration import CalibrationData, Progress, no_progress
from torchport.quantization.measure import Measures
from torchport.quantization.options import (
    DEFAULT_BUDGET,
    METHODS,
    AccuracyBudget,
    Method,
    QuantizationOptions,
    make_options,
)
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.reporting import layer_reports
from torchport.quantization.static import (
    StaticQuantization,
    calibrate_static,
    keep_accuracy,
    measure_layers,
)
from torchport.records import DEFAULT_TARGET, temporary_folder
from torchport.records.quantization import QuantizationPlan, QuantizationReport


def quantize(
    model: nn.Module,
    calibration: Iterable[object],
    *,
    method: Method = "ptq",
    target: str = DEFAULT_TARGET,
    accuracy: AccuracyBudget | None = None,
    speed: bool = True,
    options: QuantizationOptions | Mapping[str, object] | None = None,
    name: str = "",
    progress: Progress = no_progress,
) -> QuantizedModel:
    """Quantize a model: layers compute in eight bits where that is accurate enough.

    Args:
        model: the module, in evaluation mode. It is left as it is.
        calibration: inputs: each item a tensor, a tuple of positional or a dict of keyword inputs. They are
            read once, and kept on disk. Part of them is held back, to judge the result.
        method: `ptq`, static post-training quantization.
        target: the target that it is meant for.
        accuracy: what must be kept; without it, a PCC of 0.99 of the results on held-back data.
        speed: whether layers that the target has no kernel for, or runs slower, go back to floats.
        options: how; `QuantizationOptions`, or a dict of its fields.
        name: the model's name in records and messages.
        progress: called with what is being done, how much of it is, and how much there is, if known.

    Returns:
        A module that is called as the model is. It has a `plan` and a `report`; `torchport.compile` takes it.

    Raises:
        QuantizationError: the options, the model or the data do not fit, or the accuracy cannot be kept.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
        >>> quantized = quantize(model, [torch.rand(4, 8) for _ in range(8)])
        >>> quantized.plan.count("int8") + quantized.plan.count("float")
        2
    """
    chosen = make_options(options)
    if method not in METHODS:
        raise QuantizationError(
            f"there is no method {method!r}", where="quantize", remedy=nearest(method, METHODS)
        )
    targets.find(target)
    if not isinstance(model, nn.Module):
        raise QuantizationError(f"a {type(model).__name__} is no module", where="quantize")
    name = name or type(model).__name__
    with temporary_folder("calibration") as folder:
        data = CalibrationData(calibration, folder, chosen, progress)
        quantization = calibrate_static(model, data, chosen, name, progress)
        measures = measure_layers(quantization, data, progress)
        keep_accuracy(quantization, accuracy or DEFAULT_BUDGET, measures, data, progress)
        if any(plan.reason == "sensitive" for plan in quantization.plans.values()):
            measures = measure_layers(quantization, data, progress)
        return _finish(quantization, measures, data, method, target)


def _finish(
    quantization: StaticQuantization, measures: Measures, data: CalibrationData, method: Method, target: str
) -> QuantizedModel:
    module = quantization.module()
    name = quantization.floats.name
    plan = QuantizationPlan(name, method, target, tuple(quantization.plans.values()))
    scored = quantization.score_float is not None and quantization.outcome is not None
    report = QuantizationReport(
        model=name,
        method=method,
        target=target,
        layers=layer_reports(plan, measures),
        calibrated_on=len(data.calibrating),
        judged_on=len(data.held_back),
        pcc=measures.results.pcc,
        sqnr=measures.results.sqnr,
        score_float=quantization.score_float,
        score=quantization.outcome.value if scored and quantization.outcome else None,
        bytes_float=weight_bytes(quantization.model),
        bytes=weight_bytes(module),
    )
    return QuantizedModel(module, plan, report)

"""`torchport.quantize`: a model and calibration data → a quantized model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, overload

from torch import nn

from torchport import targets
from torchport.errors import QuantizationError, nearest
from torchport.quantization.calibration import CalibrationData, Progress, checked_items, no_progress
from torchport.quantization.dynamic import quantize_dynamic
from torchport.quantization.graph_quantization import (
    GraphQuantization,
    keep_accuracy,
    measure_layers,
    rescore,
)
from torchport.quantization.measure import LayerMeasure, Measures
from torchport.quantization.options import (
    DEFAULT_BUDGET,
    METHODS,
    AccuracyBudget,
    Method,
    QuantizationOptions,
    check_applicable,
    make_options,
)
from torchport.quantization.quantized_graph import weight_bytes
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.reporting import layer_reports
from torchport.quantization.speed import Speeds, keep_speed
from torchport.quantization.static import calibrate_static
from torchport.quantization.training import TrainableModel
from torchport.quantization.weight_only import quantize_weights
from torchport.records import DEFAULT_TARGET, temporary_folder
from torchport.records.quantization import QuantizationPlan, QuantizationReport


@overload
def quantize(
    model: nn.Module,
    calibration: Iterable[object],
    *,
    method: Literal["ptq", "dynamic", "weight_only"] = "ptq",
    target: str = DEFAULT_TARGET,
    accuracy: AccuracyBudget | None = None,
    speed: bool = True,
    options: QuantizationOptions | Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    name: str = "",
    progress: Progress = no_progress,
) -> QuantizedModel: ...


@overload
def quantize(
    model: nn.Module,
    calibration: Iterable[object],
    *,
    method: Literal["qat"],
    target: str = DEFAULT_TARGET,
    accuracy: AccuracyBudget | None = None,
    speed: bool = True,
    options: QuantizationOptions | Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    name: str = "",
    progress: Progress = no_progress,
) -> TrainableModel: ...


def quantize(
    model: nn.Module,
    calibration: Iterable[object],
    *,
    method: Method = "ptq",
    target: str = DEFAULT_TARGET,
    accuracy: AccuracyBudget | None = None,
    speed: bool = True,
    options: QuantizationOptions | Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
    name: str = "",
    progress: Progress = no_progress,
) -> QuantizedModel | TrainableModel:
    """Quantize a model: layers compute in int8 where that is accurate enough.

    Args:
        model: the module, in evaluation mode. It is not modified.
        calibration: inputs, each item a tensor, a tuple of positional inputs or a dict of keyword inputs.
            They are read once and cached on disk. Some are held back to evaluate the result.
        method: `ptq`: post-training quantization, from calibration alone; `qat`: quantization-aware training,
            which returns a model to train, then `convert`; `dynamic`: weights in int8 ahead of time,
            activations by their range in each call, without calibration: one item is enough to define the
            inputs, and all items evaluate the result; `weight_only`: weights in eight or four bits,
            arithmetic in floats, for which calibration data are optional: they evaluate the result and its
            speed, and 4-bit weights are fitted to them.
        target: the target that the model is quantized for.
        accuracy: the accuracy to keep; by default, a PCC of 0.99 for the results on held-back data.
        speed: whether layers that the target has no int8 kernel for, or runs slower, go back to floats.
        options: `QuantizationOptions`, or a dict of its fields.
        dynamic_shapes: which dimensions of the inputs may vary, as for `torch.export`; by default the batch,
            if the model allows that. Calibration items still have the same shapes, except for the batch.
        name: the model's name in records and messages.
        progress: called with the current step, the number of items done, and the total if known.

    Returns:
        A `QuantizedModel`: a module called like the original model, with a `plan` and a `report`, which
        `torchport.compile` accepts. For `qat`, a `TrainableModel`, whose `convert` returns one.

    Raises:
        QuantizationError: the options, the model or the data are invalid, or the accuracy cannot be kept.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
        >>> quantized = quantize(model, [torch.rand(4, 8) for _ in range(8)])
        >>> quantized.plan.count("int8") + quantized.plan.count("float")
        2
    """
    chosen = make_options(options)
    if method not in METHODS:
        raise QuantizationError(
            f"unknown method {method!r}", where="quantize", remedy=nearest(method, METHODS)
        )
    check_applicable(chosen, method)
    targets.find(target)
    if accuracy is not None and not isinstance(accuracy, AccuracyBudget):
        raise QuantizationError(
            f"accuracy is {accuracy!r}", where="quantize", remedy="give an AccuracyBudget, such as pcc=0.999"
        )
    if not isinstance(model, nn.Module):
        raise QuantizationError(f"a {type(model).__name__} is not a module", where="quantize")
    name = name or type(model).__name__
    if method == "weight_only":
        if dynamic_shapes is not None:
            raise QuantizationError(
                "weight_only does not use dynamic_shapes: the result runs the model's own code",
                where=name,
                remedy="leave them out here, and give them to torchport.compile",
            )
        return quantize_weights(
            model,
            checked_items(model, calibration, name),
            accuracy or DEFAULT_BUDGET,
            chosen,
            target,
            name,
            speed=speed,
            progress=progress,
        )
    if method == "qat":  # training compensates for what these would correct
        chosen = replace(chosen, smooth_quant=False, bias_correction=False)
    with temporary_folder("calibration") as folder:
        data = CalibrationData(calibration, folder, chosen, progress, calibrates=method != "dynamic")
        if method == "dynamic":
            quantization = quantize_dynamic(model, data, chosen, name, dynamic_shapes)
        else:
            quantization = calibrate_static(model, data, chosen, name, progress, dynamic_shapes)
        if method == "qat":
            # Training changes whatever could be measured now; evaluating the trained model is up to the user.
            nothing = Measures({layer.name: LayerMeasure() for layer in quantization.layers})
            counts = len(data.calibrating), 0
            return TrainableModel(
                quantization, lambda trained: _finish(trained, nothing, Speeds(), counts, method, target)
            )
        measures = measure_layers(quantization, data, progress)
        keep_accuracy(quantization, accuracy or DEFAULT_BUDGET, measures, data, progress)
        judged = dict(quantization.plans)
        speeds = keep_speed(quantization, data, target, progress) if speed else Speeds()
        if quantization.plans != judged:  # the score was for different precisions
            rescore(quantization, accuracy or DEFAULT_BUDGET)
        if any(plan.reason in ("sensitive", "slower", "no_kernel") for plan in quantization.plans.values()):
            measures = measure_layers(quantization, data, progress)
        counts = len(data.calibrating), len(data.held_back)
        return _finish(quantization, measures, speeds, counts, method, target)


def _finish(
    quantization: GraphQuantization,
    measures: Measures,
    speeds: Speeds,
    counts: tuple[int, int],
    method: Method,
    target: str,
) -> QuantizedModel:
    module = quantization.module()
    name = quantization.floats.name
    plan = QuantizationPlan(name, method, target, tuple(quantization.plans.values()))
    scored = quantization.score_float is not None and quantization.outcome is not None
    report = QuantizationReport(
        model=name,
        method=method,
        target=target,
        layers=layer_reports(plan, measures, speeds.layers),
        calibrated_on=counts[0],
        judged_on=counts[1],
        pcc=measures.results.pcc if counts[1] else None,
        sqnr=measures.results.sqnr if counts[1] else None,
        score_float=quantization.score_float,
        score=quantization.outcome.value if scored and quantization.outcome else None,
        bytes_float=weight_bytes(quantization.model),
        bytes=weight_bytes(module),
        seconds_float=speeds.seconds_float,
        seconds=speeds.seconds,
    )
    return QuantizedModel(module, plan, report)

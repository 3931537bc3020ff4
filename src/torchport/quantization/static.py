"""Static quantization: activation ranges are fixed in advance, from calibration data."""

from __future__ import annotations

from torch import nn

from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.equalize import equalize
from torchport.quantization.float_graph import capture_floats
from torchport.quantization.graph_quantization import GraphQuantization, plan_layers
from torchport.quantization.model_runs import naming_failing_item
from torchport.quantization.nncf_calibration import calibrate
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.output_channels import scale_output_channels
from torchport.quantization.unquantized_products import round_left_products


def calibrate_static(
    model: nn.Module,
    data: CalibrationData,
    options: QuantizationOptions,
    name: str,
    progress: Progress,
    dynamic_shapes: object = None,
) -> GraphQuantization:
    """Capture and calibrate a model; every layer computes in eight bits unless an option says otherwise."""
    floats = capture_floats(model, data, name, dynamic_shapes)
    if options.equalize:
        run = floats.graph_module.forward
        with naming_failing_item(lambda item: run(*data.load(item)), data.calibrating, name):
            equalize(floats.graph_module, data, progress)
    decisions = calibrate(floats, data, options, progress)
    scale_output_channels(floats.graph_module, options, decisions)
    round_left_products(floats.graph_module, data, options, decisions)
    return plan_layers(model, floats, decisions, options)

"""A model and calibration data → a plan for each layer → a quantized model, which compiles like any other."""

from torchport.quantization.calibration import Progress, item_of
from torchport.quantization.options import AccuracyBudget, QuantizationOptions
from torchport.quantization.plan_file import read_plan
from torchport.quantization.quantize_model import quantize
from torchport.quantization.quantized_model import QuantizedModel
from torchport.quantization.training import TrainableModel

__all__ = [
    "AccuracyBudget",
    "Progress",
    "item_of",
    "QuantizationOptions",
    "quantize",
    "QuantizedModel",
    "read_plan",
    "TrainableModel",
]

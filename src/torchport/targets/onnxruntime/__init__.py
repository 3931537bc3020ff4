"""onnxruntime: islands as ONNX, written by torch's own exporter."""

from torchport.targets.onnxruntime.target import OnnxRuntimeTarget

__all__ = ["OnnxRuntimeTarget"]

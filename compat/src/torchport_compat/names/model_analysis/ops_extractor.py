"""`extract_pytorch_ops`."""

from torchport.analysis import extract_pytorch_ops

__all__ = ["extract_pytorch_ops"]

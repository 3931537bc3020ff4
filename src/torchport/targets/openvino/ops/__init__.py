"""The rules, one op family a file; importing this fills the registry."""

from torchport.targets.openvino.ops import draft

__all__ = ["draft"]

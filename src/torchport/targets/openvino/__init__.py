"""The OpenVINO target: rule-based verdicts, islands converted by its own frontend, zero-copy inference."""

from torchport.targets.openvino.target import OpenVinoTarget

__all__ = ["OpenVinoTarget"]

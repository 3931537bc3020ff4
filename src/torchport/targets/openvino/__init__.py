"""OpenVINO: verdicts by rule, islands by its own frontend, zero-copy runs."""

from torchport.targets.openvino.target import OpenVinoTarget

__all__ = ["OpenVinoTarget"]

"""inductor: torch's own compiler, ahead of time, on CPUs and NVIDIA's GPUs."""

from torchport.targets.inductor.target import InductorTarget

__all__ = ["InductorTarget"]

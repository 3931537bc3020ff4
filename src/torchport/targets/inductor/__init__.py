"""inductor: torch's own compiler, run ahead of time, for CPUs and NVIDIA GPUs."""

from torchport.targets.inductor.target import InductorTarget

__all__ = ["InductorTarget"]

"""A program and tensors → tensors: runs ttnn's calls on torch, as strictly as the library judges them."""

from torchport.targets.ttnn.simulator.kernels import KERNELS, Held, Made
from torchport.targets.ttnn.simulator.run import Simulation

__all__ = ["KERNELS", "Held", "Made", "Simulation"]

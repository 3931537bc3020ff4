"""A program and tensors → tensors: runs ttnn's calls on torch, as strictly as the library judges them.

Importing this fills the registry of functions: each stands over its kernel, with all that is known of it.
"""

from torchport.targets.ttnn.functions import FUNCTIONS
from torchport.targets.ttnn.simulator import elementwise, images, movement, products, reduction  # noqa: F401
from torchport.targets.ttnn.simulator.run import Simulation
from torchport.targets.ttnn.simulator.tensors import Held, Made

__all__ = ["FUNCTIONS", "Held", "Made", "Simulation"]

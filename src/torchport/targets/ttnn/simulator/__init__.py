"""A program and tensors → tensors: runs ttnn's calls on torch, checking them as strictly as the library.

Importing this package fills the registry of functions: each kernel is registered with its properties.
"""

from torchport.targets.ttnn.functions import FUNCTIONS
from torchport.targets.ttnn.simulator import elementwise, images, movement, products, reduction  # noqa: F401
from torchport.targets.ttnn.simulator.run import Simulation
from torchport.targets.ttnn.simulator.tensors import Held, Made

__all__ = ["FUNCTIONS", "Held", "Made", "Simulation"]

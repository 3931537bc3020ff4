"""The targets: what a device supports, how its islands are built, and how they are loaded."""

from torchport.targets.new_project import new_target
from torchport.targets.registry import engines, find, find_engine, names
from torchport.targets.target import Artifact, Availability, Island, Options, OwnWeight, Target

__all__ = [
    "Artifact",
    "Availability",
    "Island",
    "Options",
    "OwnWeight",
    "Target",
    "engines",
    "find",
    "find_engine",
    "names",
    "new_target",
]

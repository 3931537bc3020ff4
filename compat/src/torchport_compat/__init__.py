"""torchport under the names of the tools that it replaces; the packages with these names are in `names/`."""

from torchport_compat.naming import NAMES, NameTaken, claim, locate

__all__ = ["NAMES", "NameTaken", "claim", "locate"]

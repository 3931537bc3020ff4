"""torchport under the names of the tools that it stands in for; the names themselves are in `names/`."""

from torchport_compat.naming import NAMES, NameTaken, claim, locate

__all__ = ["NAMES", "NameTaken", "claim", "locate"]

"""The host itself: runs islands with eager torch, so that every stage can be tested anywhere."""

from torchport.targets.host.target import HostTarget

__all__ = ["HostTarget"]

"""Tenstorrent chips: whole islands as programs of ttnn calls, simulated where there is no chip."""

from torchport.targets.ttnn.target import TtnnTarget

__all__ = ["TtnnTarget"]

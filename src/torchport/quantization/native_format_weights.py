"""Quantizes linear layers to a target's own narrow float formats, such as ttnn's block floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from torchport import targets
from torchport.quantization.calibration import Progress
from torchport.quantization.native_format_linear import OwnFormLinear
from torchport.quantization.weight_quantization import WeightQuantization
from torchport.quantization.weight_rounding import Rounded
from torchport.targets import OwnWeight


class OwnWeightQuantization(WeightQuantization):
    """A model whose linear layers are being quantized to the target's own floats, without using data."""

    def __init__(self, target: str, *given: Any) -> None:
        super().__init__(*given)
        self._target = target

    def quantize(self, items: Sequence[object], progress: Progress) -> int:
        """Make the quantized layers; return 0, since no data are used."""
        for name in self._chosen():
            self._set(name, None)
        return 0

    def note(self) -> str:
        """Return which formats the target stores the weights in."""
        own = {layer.dtype for layer in self.quantized.values() if isinstance(layer, OwnFormLinear)}
        return f"{self._target} stores weights in {' and '.join(sorted(own))}" if own else ""

    def _four_bits(self, name: str, rounded: Rounded | None = None) -> OwnFormLinear:
        return self._own(name, 4)

    def _eight_bits(self, name: str) -> OwnFormLinear:
        return self._own(name, 8)

    def _own(self, name: str, bits: int) -> OwnFormLinear:
        linear = self._model.get_submodule(self._paths[name])
        assert isinstance(linear, nn.Linear)
        owner = self.quantized.get(self._owners.get(name, ""))
        if isinstance(owner, OwnFormLinear) and self.plans[self._owners[name]].bits == bits:
            made = OwnFormLinear(linear, OwnWeight(owner.dtype, owner.weight.detach(), owner.stored_bytes))
            made.weight = owner.weight
            return made
        own = targets.find(self._target).own_weight(linear.weight.detach(), bits)
        assert own is not None
        return OwnFormLinear(linear, own)

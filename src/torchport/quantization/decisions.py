"""What a calibration decided, by the names of a graph's nodes: ranges, quantized weights, new biases.

Independent of who decided it and of the graph's sizes, so that it can be applied to any copy of the graph,
for any choice of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Rounds a tensor to the numbers `(q - zero_point) * scale` for whole q between two limits.

    Args:
        name: its own; the same one for several readers of a tensor.
        scale, zero_point, low, high: the numbers.
    """

    name: str
    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest number."""
        return (self.low - self.zero_point) * self.scale, (self.high - self.zero_point) * self.scale

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, rounded."""
        return torch.fake_quantize_per_tensor_affine(tensor, self.scale, self.zero_point, self.low, self.high)


@dataclass(frozen=True, slots=True)
class OwnRange:
    """Rounds a tensor within the range that it has at each call, on both sides of 0.

    Args:
        name: its own; the same one for several readers of a tensor.
        dims: those that share a range; each place in the others has its own.
        is_unsigned: whether no number is negative: all steps are above 0 then.
    """

    name: str
    dims: tuple[int, ...]
    is_unsigned: bool = False

    # What a range of zeros is taken for: small enough to be nothing, large enough to divide by.
    SMALLEST: ClassVar[float] = 1e-30

    @property
    def unit(self) -> Quantizer:
        """What rounds the tensor once its largest magnitude is 1."""
        if self.is_unsigned:
            return Quantizer(self.name, 1 / 255, 0, 0, 255)
        return Quantizer(self.name, 1 / 127, 0, -127, 127)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, rounded."""
        largest = tensor.abs().amax(self.dims, keepdim=True).clamp_min(self.SMALLEST)
        return self.unit(tensor / largest) * largest


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """What happens to a tensor on its way into an op.

    Args:
        quantizer: what rounds it, if anything does.
        factor: what its channels are multiplied by before, if SmoothQuant moved outliers into the weights.
        factor_name: the factor's own name; the same one for several readers.
    """

    quantizer: Quantizer | OwnRange | None = None
    factor: torch.Tensor | None = None
    factor_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """A weight in eight bits: `values * scale`.

    Args:
        values: int8, of the weight's shape.
        scale: float32, of a shape that broadcasts to it.
    """

    values: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def rounded(cls, weight: torch.Tensor, channel_dim: int | None, most: int) -> QuantizedWeight:
        """Round a weight to whole numbers up to `most`, with a scale for each channel, or one for all."""
        dims = [dim for dim in range(weight.dim()) if dim != channel_dim]
        largest = weight.abs().amax(dims, keepdim=True)
        scale = (largest / most).clamp_min(torch.finfo(torch.float32).tiny)
        return cls((weight / scale).round().clamp(-most, most).to(torch.int8), scale)

    @property
    def floats(self) -> torch.Tensor:
        """The weight that it stands for."""
        return self.values.float() * self.scale


@dataclass(slots=True, eq=False)
class Decisions:
    """All that a calibration decided.

    Args:
        edges: by the reading node's name, and the place of the tensor among its arguments.
        weights: by the node's name, and the place of the weight among its arguments.
        biases: the new biases, by the node's name.
    """

    edges: dict[tuple[str, int], Edge] = field(default_factory=dict)
    weights: dict[tuple[str, int], QuantizedWeight] = field(default_factory=dict)
    biases: dict[str, torch.Tensor] = field(default_factory=dict)

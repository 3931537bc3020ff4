"""What calibration decided, by the names of a graph's nodes: ranges, quantized weights, new biases.

Independent of the calibrator and of the graph's sizes, so it can be applied to any copy of the graph, for any
choice of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch


@dataclass(frozen=True, slots=True)
class Quantizer:
    """Rounds a tensor to the values `(q - zero_point) * scale` for integers q between two limits.

    Args:
        name: a unique name, shared by all readers of a tensor.
        scale, zero_point: the quantization parameters.
        low, high: the limits of q.
    """

    name: str
    scale: float
    zero_point: int
    low: int
    high: int

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest representable value."""
        return (self.low - self.zero_point) * self.scale, (self.high - self.zero_point) * self.scale

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, rounded."""
        return torch.fake_quantize_per_tensor_affine(tensor, self.scale, self.zero_point, self.low, self.high)


@dataclass(frozen=True, slots=True)
class DynamicRange:
    """Rounds a tensor by its own range in each call, symmetrically around 0.

    Args:
        name: a unique name, shared by all readers of a tensor.
        dims: the dimensions that share a range; each index of the others has its own.
        is_unsigned: whether no value is negative, so that all steps are at or above 0.
    """

    name: str
    dims: tuple[int, ...]
    is_unsigned: bool = False

    # Stands in for the magnitude of an all-zero range: negligible, but large enough to divide by.
    SMALLEST: ClassVar[float] = 1e-30

    @property
    def unit(self) -> Quantizer:
        """The quantizer for the tensor once it is scaled to a largest magnitude of 1."""
        if self.is_unsigned:
            return Quantizer(self.name, 1 / 255, 0, 0, 255)
        # No value reaches -128, but engines compute with all 256 steps directly, and with 255 after a clamp.
        return Quantizer(self.name, 1 / 127, 0, -128, 127)

    def __call__(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor, rounded."""
        largest = tensor.abs().amax(self.dims, keepdim=True).clamp_min(self.SMALLEST)
        return self.unit(tensor / largest) * largest


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """What happens to a tensor on its way into an op.

    Args:
        quantizer: rounds it, or None.
        factor: scales its channels before that, if SmoothQuant moved outliers into the weights.
        factor_name: the factor's unique name, shared by all its readers.
    """

    quantizer: Quantizer | DynamicRange | None = None
    factor: torch.Tensor | None = None
    factor_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """A weight in eight bits: `values * scale`.

    Args:
        values: int8, in the weight's shape.
        scale: float32, in a shape that broadcasts to it.
    """

    values: torch.Tensor
    scale: torch.Tensor

    @classmethod
    def rounded(cls, weight: torch.Tensor, channel_dim: int | None, most: int) -> QuantizedWeight:
        """Round a weight to integers up to `most` in magnitude, with a scale per channel or per tensor."""
        dims = [dim for dim in range(weight.dim()) if dim != channel_dim]
        largest = weight.abs().amax(dims, keepdim=True)
        scale = (largest / most).clamp_min(torch.finfo(torch.float32).tiny)
        return cls((weight / scale).round().clamp(-most, most).to(torch.int8), scale)

    @property
    def floats(self) -> torch.Tensor:
        """The dequantized weight."""
        return self.values.float() * self.scale


@dataclass(slots=True, eq=False)
class Decisions:
    """All decisions of a calibration.

    Args:
        edges: by the reading node's name and the tensor's index among its operands.
        weights: by the node's name and the weight's index among its operands.
        biases: the new biases, by the node's name.
    """

    edges: dict[tuple[str, int], Edge] = field(default_factory=dict)
    weights: dict[tuple[str, int], QuantizedWeight] = field(default_factory=dict)
    biases: dict[str, torch.Tensor] = field(default_factory=dict)

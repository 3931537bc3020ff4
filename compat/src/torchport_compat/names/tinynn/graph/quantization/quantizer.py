"""The quantizers, by their names: each refuses, since torchport does not quantize yet."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from torchport.errors import TorchportError


class _Quantizer:
    """What is there of every quantizer.

    Args:
        model: the model.
        dummy_input: its example input or inputs.
        work_dir: a folder for files.
        config: the quantizer's settings.

    Raises:
        TorchportError: always.
    """

    def __init__(
        self,
        model: nn.Module,
        dummy_input: object,
        work_dir: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        raise TorchportError(
            f"{type(self).__name__} is not supported: torchport does not quantize yet",
            where=type(model).__name__,
            remedy="compile the model in float32, or in bfloat16 with model.bfloat16()",
        )


class PostQuantizer(_Quantizer):
    """Static quantization after training, with calibration."""


class QATQuantizer(_Quantizer):
    """Quantization-aware training."""


class DynamicQuantizer(_Quantizer):
    """Quantized weights; activations as they come."""


class BF16Quantizer(_Quantizer):
    """Weights and activations in bfloat16."""

"""The quantizers, by their names, over `torchport.quantize`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

import torch
from torch import nn

import torchport
from torchport.errors import TorchportError, nearest

# A key of TinyNeuralNetwork's config → the option of torchport.quantize, and what its values become.
CONFIG: dict[str, tuple[str, Mapping[object, object]]] = {
    "asymmetric": ("activations", {True: "asymmetric", False: "symmetric"}),
    "per_tensor": ("weights", {True: "per_tensor", False: "per_channel"}),
    "algorithm": ("ranges", {"l2": "histogram"}),
}


class _Quantizer:
    """What all quantizers share.

    Args:
        model: the model, which is left as it is.
        dummy_input: its example input, or a tuple or list of them.
        work_dir: ignored; no files are written.
        config: `asymmetric`, `per_tensor` and `algorithm`; other keys are refused.

    Raises:
        TorchportError: the config has another key, or a value that torchport has no option for.
    """

    method: str

    def __init__(
        self,
        model: nn.Module,
        dummy_input: object,
        work_dir: str | None = None,
        config: Mapping[str, object] | None = None,
    ) -> None:
        self.model = model
        self.dummy_input = tuple(dummy_input) if isinstance(dummy_input, (tuple, list)) else (dummy_input,)
        self.options = _options(config or {}, type(self).__name__)

    def _quantize(self, calibration: Iterable[object]) -> nn.Module:
        quantize = cast("_Quantize", torchport.quantize)  # which says more of what each method returns
        return quantize(self.model, calibration, method=self.method, options=self.options)


class _Quantize(Protocol):
    def __call__(
        self, model: nn.Module, calibration: Iterable[object], *, method: str, options: Mapping[str, object]
    ) -> nn.Module: ...


class PostQuantizer(_Quantizer):
    """Static quantization after training: `quantize()`, calls with calibration data, `convert(model)`.

    Example:
        >>> quantizer = PostQuantizer(model, dummy_input, work_dir="out")
        >>> calibrating = quantizer.quantize()
        >>> for batch in data:
        ...     calibrating(batch)
        >>> quantized = quantizer.convert(calibrating)
    """

    method = "ptq"

    def quantize(self) -> Calibrating:
        """Return the model as one that keeps what it is called with."""
        return Calibrating(self.model)

    def convert(self, model: Calibrating) -> nn.Module:
        """Return the quantized model, calibrated on what `quantize()`'s was called with."""
        if not isinstance(model, Calibrating) or not model.calls:
            raise TorchportError(
                "there is nothing to calibrate with",
                where=type(self.model).__name__,
                remedy="call what quantize() returned with calibration data, then convert it",
            )
        return self._quantize(model.calls)


class Calibrating(nn.Module):
    """A model that keeps copies of the inputs of its calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls: list[tuple[object, ...]] = []

    def forward(self, *args: object) -> object:
        """Call the model."""
        self.calls.append(tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args))
        return self.model(*args)


class DynamicQuantizer(_Quantizer):
    """Weights in eight bits, activations by their range at each call: `quantize()`, `convert(model)`."""

    method = "dynamic"

    def quantize(self) -> nn.Module:
        """Return the quantized model."""
        return self._quantize([self.dummy_input])

    def convert(self, model: nn.Module) -> nn.Module:
        """Return what `quantize()` returned."""
        return model


class QATQuantizer(_Quantizer):
    """Quantization-aware training: `quantize()`, training, `convert(model)`.

    Args:
        model, dummy_input, work_dir, config: as of any quantizer.
        calibration: inputs that the ranges of activations are taken from, which training does not change.
    """

    method = "qat"

    def __init__(
        self,
        model: nn.Module,
        dummy_input: object,
        work_dir: str | None = None,
        config: Mapping[str, object] | None = None,
        *,
        calibration: Iterable[object] = (),
    ) -> None:
        super().__init__(model, dummy_input, work_dir, config)
        self.calibration = list(calibration)

    def quantize(self) -> nn.Module:
        """Return the model to be trained."""
        if not self.calibration:
            raise self._refusal(
                "torchport takes the ranges of activations from data", "pass calibration=[…], a few inputs"
            )
        model = self._quantize(self.calibration)
        if not hasattr(model, "convert"):
            raise self._refusal("this torchport does not train quantized models", "use PostQuantizer")
        return model

    def convert(self, model: nn.Module) -> nn.Module:
        """Return the trained model, quantized."""
        return cast("_Trainable", model).convert()

    def _refusal(self, what: str, remedy: str) -> TorchportError:
        return TorchportError(what, where=type(self.model).__name__, remedy=remedy)


class _Trainable(Protocol):
    def convert(self) -> nn.Module: ...


class BF16Quantizer(_Quantizer):
    """Weights and activations in bfloat16: refused, since a model in bfloat16 is compiled as it is."""

    method = "bf16"

    def quantize(self) -> nn.Module:
        """Refuse."""
        raise TorchportError(
            "BF16Quantizer is not supported",
            where=type(self.model).__name__,
            remedy="torchport compiles model.bfloat16()",
        )


def _options(config: Mapping[str, object], where: str) -> dict[str, object]:
    options = {}
    for key, value in config.items():
        if key not in CONFIG:
            raise TorchportError(f"there is no config {key!r}", where=where, remedy=nearest(key, CONFIG))
        option, values = CONFIG[key]
        if not any(value == known and type(value) is type(known) for known in values):
            raise TorchportError(
                f"the config {key!r} cannot be {value!r}", where=where, remedy=f"it is one of {list(values)}"
            )
        options[option] = values[value]
    return options

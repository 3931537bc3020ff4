"""TinyNeuralNetwork's quantizers, implemented with `torchport.quantize`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, cast

import torch
from torch import nn

import torchport
from torchport.errors import TorchportError, nearest

# A key of TinyNeuralNetwork's config → the option of torchport.quantize, and the mapping of its values.
CONFIG: dict[str, tuple[str, Mapping[object, object]]] = {
    "asymmetric": ("activations", {True: "asymmetric", False: "symmetric"}),
    "per_tensor": ("weights", {True: "per_tensor", False: "per_channel"}),
    "algorithm": ("ranges", {"l2": "histogram"}),
}


class _Quantizer:
    """The base class of all quantizers.

    Args:
        model: the model, which is not modified.
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
        quantize = cast("_Quantize", torchport.quantize)  # whose overloads need a literal method
        return quantize(self.model, calibration, method=self.method, options=self.options)


class _Quantize(Protocol):
    def __call__(
        self, model: nn.Module, calibration: Iterable[object], *, method: str, options: Mapping[str, object]
    ) -> nn.Module: ...


class PostQuantizer(_Quantizer):
    """Post-training static quantization: `quantize()`, calls with calibration data, `convert(model)`.

    Example:
        >>> quantizer = PostQuantizer(model, dummy_input, work_dir="out")
        >>> calibrating = quantizer.quantize()
        >>> for batch in data:
        ...     calibrating(batch)
        >>> quantized = quantizer.convert(calibrating)
    """

    method = "ptq"

    def quantize(self) -> Calibrating:
        """Return a wrapper of the model that records its inputs."""
        return Calibrating(self.model)

    def convert(self, model: Calibrating) -> nn.Module:
        """Return the quantized model, calibrated on the inputs that `model` recorded."""
        if not isinstance(model, Calibrating) or not model.calls:
            raise TorchportError(
                "there is nothing to calibrate with",
                where=type(self.model).__name__,
                remedy="call the model that quantize() returned with calibration data, then convert it",
            )
        return self._quantize(model.calls)


class Calibrating(nn.Module):
    """A model that records copies of its inputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.calls: list[tuple[object, ...]] = []

    def forward(self, *args: object) -> object:
        """Call the model."""
        self.calls.append(tuple(a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args))
        return self.model(*args)


class DynamicQuantizer(_Quantizer):
    """Dynamic quantization, with activation ranges computed at each call: `quantize()`, `convert(model)`."""

    method = "dynamic"

    def quantize(self) -> nn.Module:
        """Return the quantized model."""
        return self._quantize([self.dummy_input])

    def convert(self, model: nn.Module) -> nn.Module:
        """Return the model unchanged: `quantize()` has already quantized it."""
        return model


class QATQuantizer(_Quantizer):
    """Quantization-aware training: `quantize()`, training, `convert(model)`.

    Args:
        model, dummy_input, work_dir, config: as for every quantizer.
        calibration: inputs from which the activation ranges are determined; training does not change them.
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
        """Return the model to train."""
        if not self.calibration:
            raise self._refusal(
                "torchport determines activation ranges from data", "pass calibration=[…], a few inputs"
            )
        model = self._quantize(self.calibration)
        if not hasattr(model, "convert"):
            raise self._refusal("this torchport does not train quantized models", "use PostQuantizer")
        return model

    def convert(self, model: nn.Module) -> nn.Module:
        """Return the quantized version of the trained model."""
        return cast("_Trainable", model).convert()

    def _refusal(self, what: str, remedy: str) -> TorchportError:
        return TorchportError(what, where=type(self.model).__name__, remedy=remedy)


class _Trainable(Protocol):
    def convert(self) -> nn.Module: ...


class BF16Quantizer(_Quantizer):
    """Weights and activations in bfloat16: not supported; torchport compiles bfloat16 models directly."""

    method = "bf16"

    def quantize(self) -> nn.Module:
        """Raise: this quantizer is not supported."""
        raise TorchportError(
            "BF16Quantizer is not supported",
            where=type(self.model).__name__,
            remedy="torchport compiles model.bfloat16()",
        )


def _options(config: Mapping[str, object], where: str) -> dict[str, object]:
    options = {}
    for key, value in config.items():
        if key not in CONFIG:
            raise TorchportError(f"unknown config key {key!r}", where=where, remedy=nearest(key, CONFIG))
        option, values = CONFIG[key]
        if not any(value == known and type(value) is type(known) for known in values):
            raise TorchportError(
                f"the config {key!r} cannot be {value!r}", where=where, remedy=f"use one of {list(values)}"
            )
        options[option] = values[value]
    return options

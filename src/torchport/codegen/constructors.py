"""Recovers the non-default constructor arguments of torch's own modules from the modules."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from torchport.errors import CodegenError

# Arguments that do not describe a module: those about its weights, which come from the weights file, and two
# deprecated ones of losses, which only determine `reduction` and are not stored.
_IGNORED = frozenset(
    {"self", "device", "dtype", "args", "kwargs", "_weight", "_freeze", "size_average", "reduce"}
)


def constructor_arguments(module: nn.Module) -> dict[str, object]:
    """Return the constructor arguments that recreate a module, without those that equal their defaults.

    Raises:
        CodegenError: an argument cannot be recovered from the module.

    Example:
        >>> constructor_arguments(nn.Conv2d(3, 8, 3, padding=1, bias=False))
        {'in_channels': 3, 'out_channels': 8, 'kernel_size': 3, 'padding': 1, 'bias': False}
    """
    kind: Any = type(module)
    parameters = _parameters(kind)
    arguments: dict[str, object] = {}
    for name, parameter in parameters.items():
        value = _read(module, name)
        if value is _MISSING:
            raise CodegenError(
                f"the constructor argument {name!r} of a {type(module).__name__} cannot be recovered from it",
                remedy="trace through it: wrap it in a module of your own",
            )
        default = parameter.default
        value = _simplest(module, name, value)
        if default is inspect.Parameter.empty or not _same(value, default):
            arguments[name] = value
    return arguments


_MISSING = object()


@functools.cache
def _parameters(kind: Any) -> Mapping[str, inspect.Parameter]:
    if issubclass(kind, nn.RNNBase) and kind is not nn.RNNBase:
        base = dict(inspect.signature(nn.RNNBase.__init__).parameters)
        base.pop("mode")
        if kind is nn.RNN:
            base["nonlinearity"] = inspect.Parameter(
                "nonlinearity", inspect.Parameter.KEYWORD_ONLY, default="tanh"
            )
        return {name: value for name, value in base.items() if name not in _IGNORED}
    signature = inspect.signature(kind.__init__)
    return {name: value for name, value in signature.parameters.items() if name not in _IGNORED}


def is_required(kind: Any, name: str) -> bool:
    """Whether a constructor's argument has no default."""
    return _parameters(kind)[name].default is inspect.Parameter.empty


def _read(module: nn.Module, name: str) -> object:
    """Return the value that was passed for a constructor argument."""
    special = _SPECIAL.get(type(module).__name__, {}).get(name)
    if special is not None:
        return special(module)
    if name in ("bias", "add_bias_kv"):
        held = getattr(module, "bias_k" if name == "add_bias_kv" else "bias", None)
        return held if isinstance(held, bool) else held is not None
    for attribute in (name, f"_{name}"):
        value = getattr(module, attribute, _MISSING)
        if value is not _MISSING:
            return value
    return _MISSING


def _activation(layer: nn.Module) -> object:
    activation = getattr(layer, "activation", None)
    return "gelu" if activation is nn.functional.gelu else activation


# Arguments that a module does not store under their own names.
_LAYER: dict[str, Callable[[Any], object]] = {
    "d_model": lambda layer: layer.self_attn.embed_dim,
    "nhead": lambda layer: layer.self_attn.num_heads,
    "dim_feedforward": lambda layer: layer.linear1.out_features,
    "dropout": lambda layer: layer.dropout.p,
    "activation": _activation,
    "layer_norm_eps": lambda layer: layer.norm1.eps,
    "batch_first": lambda layer: layer.self_attn.batch_first,
    "bias": lambda layer: layer.linear1.bias is not None,
}
_SPECIAL: dict[str, dict[str, Callable[[Any], object]]] = {
    "MultiheadAttention": {
        "bias": lambda module: module.in_proj_bias is not None,
        "kdim": lambda module: None if module.kdim == module.embed_dim else module.kdim,
        "vdim": lambda module: None if module.vdim == module.embed_dim else module.vdim,
    },
    "TransformerEncoderLayer": _LAYER,
    "TransformerDecoderLayer": _LAYER,
    "TransformerEncoder": {"encoder_layer": lambda module: module.layers[0]},
    "TransformerDecoder": {"decoder_layer": lambda module: module.layers[0]},
    "Transformer": {
        "num_encoder_layers": lambda module: module.encoder.num_layers,
        "num_decoder_layers": lambda module: module.decoder.num_layers,
        "dim_feedforward": lambda module: module.encoder.layers[0].linear1.out_features,
        "dropout": lambda module: module.encoder.layers[0].dropout.p,
        "activation": lambda module: _activation(module.encoder.layers[0]),
        "layer_norm_eps": lambda module: module.encoder.layers[0].norm1.eps,
        "norm_first": lambda module: module.encoder.layers[0].norm_first,
        "bias": lambda module: module.encoder.layers[0].linear1.bias is not None,
        "custom_encoder": lambda module: None,
        "custom_decoder": lambda module: None,
    },
    "AdaptiveLogSoftmaxWithLoss": {"cutoffs": lambda module: list(module.cutoffs)[:-1]},
}


def _simplest(module: nn.Module, name: str, value: object) -> object:
    """Return the simplest equivalent of a value: 3 for (3, 3), where the constructor takes both."""
    if isinstance(value, torch.Size):
        value = tuple(value)
    if name == "stride" and "Pool" in type(module).__name__ and value == module.kernel_size:
        return None  # the default
    if isinstance(value, tuple) and value and all(item == value[0] for item in value):
        spread = (
            "kernel_size",
            "stride",
            "padding",
            "dilation",
            "output_padding",
            "output_size",
            "scale_factor",
        )
        single = name == "normalized_shape" and len(value) == 1
        pads = type(module).__name__.endswith(("Pad1d", "Pad2d", "Pad3d"))
        if name in spread or single or pads:
            return value[0]
    return value


def _same(value: object, default: object) -> bool:
    if isinstance(value, nn.Module) or isinstance(default, nn.Module):
        return value is default
    try:
        return type(value) is type(default) and bool(value == default)
    except (TypeError, RuntimeError):
        return False

"""Loads torchvision's models by name, with inputs of the size that each model expects."""

from __future__ import annotations

import inspect
import os
import platform
import re
from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn

from torchport.errors import ZooError, nearest, one_line
from torchport.zoo.extras import import_library
from torchport.zoo.model import Model
from torchport.zoo.network import host_of, is_reachable, weights_error
from torchport.zoo.random_weights import fixed_seed, wake_zero_weights

SCHEME = "torchvision"
DEFAULT_SIZE = 224
SMALLEST_SIZE = 128
FRAMES = 16
X86 = ("x86_64", "amd64", "x86", "i386", "i686")


class Weights(Protocol):
    """The part of torchvision's weights entries that is used here."""

    url: str
    meta: dict[str, object]
    transforms: Callable[[], object]


def names() -> list[str]:
    """Return the names of torchvision's models, sorted."""
    return sorted(import_library("torchvision").models.list_models())


def load_torchvision(name: str, *, weights: bool, batch: int) -> Model:
    """Load the torchvision model `name`.

    Args:
        name: one of `names()`.
        weights: whether to load its default pretrained weights; random ones are drawn otherwise.
        batch: the number of images or clips in the inputs.

    Returns:
        The model, with random inputs of the shape that it expects.

    Raises:
        ZooError: there is no such model, or its weights are unavailable.
    """
    known = names()
    if name not in known:
        raise ZooError(f"torchvision has no model {name!r}", remedy=nearest(name, known))
    module = _build_pretrained(name) if weights else _build_random(name)
    return Model(f"{SCHEME}:{name}", module.eval(), _inputs(name, module, batch))


def _builder(name: str) -> Callable[..., nn.Module]:
    builder: Callable[..., nn.Module] = import_library("torchvision").models.get_model_builder(name)
    return builder


def _default_weights(name: str) -> Weights | None:
    entries = import_library("torchvision").models.get_model_weights(name)
    default: Weights | None = getattr(entries, "DEFAULT", None)
    return default


def _is_quantized(name: str) -> bool:
    return kind_of(name) == "quantization"


def kind_of(name: str) -> str:
    """Return the family: detection, segmentation, video, optical_flow, quantization, or classification."""
    found = re.match(r"torchvision\.models\.(\w+)\.\w+", _builder(name).__module__)
    return found[1] if found else "classification"


def _build_random(name: str) -> nn.Module:
    builder = _builder(name)
    # Options whose defaults would download something or vary with the library's version are set explicitly.
    options: dict[str, object] = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    if "init_weights" in inspect.signature(_architecture(builder)).parameters:
        options["init_weights"] = True
    if _is_quantized(name):
        # torchvision's default, fbgemm, runs on x86 only, and fails elsewhere only when the model is run.
        options["backend"] = "fbgemm" if platform.machine().lower() in X86 else "qnnpack"
    with fixed_seed():
        module = builder(**options, **_quantize(name))
        wake_zero_weights(module)
    return module


def _architecture(builder: Callable[..., nn.Module]) -> Callable[..., object]:
    """Return the class that a builder function is annotated to return."""
    returned = inspect.signature(builder, eval_str=False).return_annotation
    return returned if inspect.isclass(returned) else builder


def _quantize(name: str) -> dict[str, object]:
    return {"quantize": True} if _is_quantized(name) else {}


def _build_pretrained(name: str) -> nn.Module:
    default = _default_weights(name)
    if default is None:
        raise weights_error(f"{SCHEME}:{name}", "torchvision offers none")
    cached = os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(default.url))
    if not os.path.exists(cached) and not is_reachable(default.url):
        raise weights_error(
            f"{SCHEME}:{name}", f"{host_of(default.url)} cannot be reached, and they are not in the cache"
        )
    try:
        return _builder(name)(weights=default, **_quantize(name))
    except OSError as error:
        raise weights_error(f"{SCHEME}:{name}", one_line(error)) from error


def _inputs(name: str, module: nn.Module, batch: int) -> tuple[object, ...]:
    kind = kind_of(name)
    size = _image_size(name, module, kind)
    generator = torch.Generator(device="cpu").manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, device="cpu")

    if kind == "detection":
        return ([draw(3, size, size) for _ in range(batch)],)
    if kind == "optical_flow":
        return draw(batch, 3, size, size), draw(batch, 3, size, size)
    if kind == "video":
        return (draw(batch, 3, FRAMES, size, size),)
    return (draw(batch, 3, size, size),)


def _image_size(name: str, module: nn.Module, kind: str) -> int:
    """Return the image's side: the model's own if it is fixed, else the one its weights are evaluated at."""
    if kind in ("detection", "segmentation"):
        return DEFAULT_SIZE
    if kind == "optical_flow":
        return SMALLEST_SIZE
    own = getattr(module, "image_size", None)
    if isinstance(own, int):
        return own
    default = _default_weights(name)
    crop = getattr(default.transforms(), "crop_size", None) if default is not None else None
    if isinstance(crop, (list, tuple)):
        crop = crop[0]
    return crop if isinstance(crop, int) else DEFAULT_SIZE

"""Loads timm's models by name, with inputs of the size that each model expects."""

from __future__ import annotations

import torch
from torch import nn

from torchport.errors import ZooError, nearest, one_line
from torchport.zoo.extras import import_library
from torchport.zoo.model import Model
from torchport.zoo.network import host_of, hub_endpoint, is_reachable, weights_error
from torchport.zoo.random_weights import fixed_seed, wake_zero_weights

SCHEME = "timm"
# The names of weight files in timm's repositories on the hub, in the order in which timm looks for them.
WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin", "open_clip_model.safetensors")


def names() -> list[str]:
    """Return the names of timm's architectures, sorted."""
    return sorted(import_library("timm").list_models())


def load_timm(name: str, *, weights: bool, batch: int) -> Model:
    """Load the timm model `name`.

    Args:
        name: one of `names()`, optionally with a tag after a dot that selects its pretrained weights.
        weights: whether to load its pretrained weights; random ones are drawn otherwise.
        batch: the number of images in the inputs.

    Returns:
        The model, with random inputs of the shape that it expects.

    Raises:
        ZooError: there is no such model, or its weights are unavailable.
    """
    known = names()
    architecture, _, tag = name.partition(".")
    if architecture not in known:
        raise ZooError(f"timm has no model {name!r}", remedy=nearest(architecture, known))
    _check_tag(architecture, tag)
    module = _build_pretrained(name) if weights else _build_random(name)
    return Model(f"{SCHEME}:{name}", module.eval(), _inputs(module, batch))


def _check_tag(architecture: str, tag: str) -> None:
    if not tag:
        return
    tagged = import_library("timm").list_pretrained(f"{architecture}.*")
    if f"{architecture}.{tag}" not in tagged:
        raise ZooError(
            f"timm has no weights {tag!r} for {architecture}", remedy=nearest(f"{architecture}.{tag}", tagged)
        )


def _build_random(name: str) -> nn.Module:
    with fixed_seed():
        module: nn.Module = import_library("timm").create_model(name, pretrained=False)
        wake_zero_weights(module)
    return module


def _build_pretrained(name: str) -> nn.Module:
    timm = import_library("timm")
    config = timm.models.get_pretrained_cfg(name)
    if config is None or not config.has_weights:
        raise weights_error(f"{SCHEME}:{name}", "timm offers none")
    try:
        # timm reads an explicitly named file without contacting the hub.
        overlay = {"file": _cached_file(config.hf_hub_id)} if _needs_cache(name, config) else None
        module: nn.Module = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except OSError as error:
        raise weights_error(f"{SCHEME}:{name}", one_line(error)) from error
    return module


def _needs_cache(name: str, config: object) -> bool:
    """Return whether the weights must come from the cache; raise if they are not available anywhere."""
    if getattr(config, "file", None):
        return False
    hub_id = getattr(config, "hf_hub_id", None)
    url = hub_endpoint() if hub_id else str(getattr(config, "url", ""))
    if is_reachable(url):
        return False
    if hub_id and _cached_file(hub_id):
        return True
    raise weights_error(
        f"{SCHEME}:{name}", f"{host_of(url)} cannot be reached, and they are not in the cache"
    )


def _cached_file(hub_id: str) -> str | None:
    import huggingface_hub

    for file in WEIGHT_FILES:
        found = huggingface_hub.try_to_load_from_cache(hub_id, file)
        if isinstance(found, str):
            return found
    return None


def _inputs(module: nn.Module, batch: int) -> tuple[object, ...]:
    config = import_library("timm").data.resolve_model_data_config(module)
    generator = torch.Generator(device="cpu").manual_seed(0)
    return (torch.rand((batch, *config["input_size"]), generator=generator, device="cpu"),)

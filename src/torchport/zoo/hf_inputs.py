"""Makes example inputs for a transformers model from its forward signature and configuration."""

from __future__ import annotations

import inspect
import itertools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchport.errors import ZooError, one_line
from torchport.zoo.hf_config import find_value
from torchport.zoo.hf_input_makers import MAKERS, InputMaker, InputSizes
from torchport.zoo.random_weights import fixed_seed

if TYPE_CHECKING:
    from transformers import PretrainedConfig

logger = logging.getLogger(__name__)

CANDIDATES = 16
# Inputs that are optional in the signature but that some models need: tried after the minimal set, in order.
COMPANIONS: Sequence[Sequence[str]] = (
    ("input_ids", "pixel_values"),
    ("input_ids", "bbox"),
    ("input_ids", "bbox", "pixel_values"),
    ("input_ids", "bbox", "image"),
    ("input_features", "input_features_mask"),
    ("input_ids", "input_features"),
    ("input_ids", "input_values"),
    ("input_ids", "pixel_values", "pixel_attention_mask", "spatial_shapes"),
)


def make_inputs(
    module: nn.Module, config: PretrainedConfig, sizes: InputSizes, *, try_out: bool = False
) -> dict[str, Tensor]:
    """Return keyword inputs for one call of `module`.

    If the signature and the configuration allow more than one set of inputs, each is tried on the model.

    Args:
        module: a transformers model.
        config: its configuration.
        sizes: the sizes that the model and its configuration leave open.
        try_out: whether to run the model even if there is only one possible set.

    Returns:
        The inputs by name.

    Raises:
        ZooError: the model needs an input that cannot be generated, or accepts none of the sets.
    """
    candidates = _candidates(module, config, sizes)
    if len(candidates) == 1 and not try_out:
        return candidates[0]
    refusal: Exception | None = None
    for candidate in candidates:
        try:
            with torch.no_grad(), fixed_seed():
                module(**candidate)
        except Exception as error:  # noqa: BLE001 - models fail in any way; the first error is chained
            logger.debug("%s rejects %s: %s", type(module).__name__, list(candidate), error)
            refusal = refusal or error
        else:
            return candidate
    assert refusal is not None  # there is always a candidate
    raise ZooError(
        f"{type(module).__name__} accepts none of the inputs made for it ({', '.join(candidates[0])}); "
        f"it raised {one_line(refusal)}",
        remedy="name a function that returns its inputs: inputs='file.py::function' (--inputs)",
    ) from refusal


def _candidates(module: nn.Module, config: PretrainedConfig, sizes: InputSizes) -> list[dict[str, Tensor]]:
    """Return the sets of inputs that the model may accept, the most likely first."""
    parameters = inspect.signature(module.forward).parameters
    required = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    main = getattr(module, "main_input_name", "input_ids")
    least = _unique([*required, *(name for name in (main, *_decoder(config)) if name in parameters)])
    unknown = [name for name in least if name not in MAKERS]
    if unknown:
        raise ZooError(
            f"{type(module).__name__} needs an input {unknown[0]!r} that cannot be generated",
            remedy="name a function that returns its inputs: inputs='file.py::function' (--inputs)",
        )
    sets = [least]
    if not _has_placeholders(config):
        sets += [_unique([*least, *(name for name in group if name in parameters)]) for group in COMPANIONS]
    maker = InputMaker(module, config, sizes)
    return [made for names in _unique_lists(sets) for made in _variants(names, maker)][:CANDIDATES]


def _variants(names: Sequence[str], maker: InputMaker) -> list[dict[str, Tensor]]:
    choices = [MAKERS[name](maker) for name in names]
    return [dict(zip(names, choice, strict=True)) for choice in itertools.product(*choices)]


def _decoder(config: PretrainedConfig) -> tuple[str, ...]:
    return ("decoder_input_ids",) if getattr(config, "is_encoder_decoder", False) else ()


def _has_placeholders(config: PretrainedConfig) -> bool:
    """Return whether images or audio are marked by placeholder tokens: text alone is then a valid input."""
    names = ("image_token_id", "image_token_index", "audio_token_id", "audio_token_index", "video_token_id")
    return find_value(config, *names) is not None


def _unique(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _unique_lists(lists: Sequence[list[str]]) -> list[list[str]]:
    return [names for index, names in enumerate(lists) if names not in lists[:index]]

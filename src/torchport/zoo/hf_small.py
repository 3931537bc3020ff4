"""Builds small versions of transformers architectures, with random weights: `hf-small:MODEL_TYPE`.

This gives hundreds of architectures to try a tool on, each built in moments and without network.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn

from torchport.errors import ZooError, nearest, one_line
from torchport.zoo.extras import import_library
from torchport.zoo.hf_input_makers import InputSizes
from torchport.zoo.hf_inputs import make_inputs
from torchport.zoo.hf_shrink import STEPS, Shrink, shrink_config
from torchport.zoo.model import Model
from torchport.zoo.random_weights import fixed_seed, wake_zero_weights

logger = logging.getLogger(__name__)

SCHEME = "hf-small"
LANGUAGE_SCHEME = "hf-small-lm"
MOST_PARAMETERS = 200_000_000


def small_hf_names() -> list[str]:
    """Return the model types that transformers has a base model for, sorted.

    Not every one can be reduced and given inputs by general rules; `load_small_hf` raises for the others.

    Example:
        >>> "bert" in small_hf_names()
        True
    """
    import_library("transformers")
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def load_small_hf(model_type: str, *, batch: int = 1) -> Model:
    """Build the architecture `model_type` in a small configuration, and check that it runs.

    Args:
        model_type: one of `small_hf_names()`.
        batch: the batch size of the inputs.

    Returns:
        The base model (without a head), with random weights and inputs.

    Raises:
        ZooError: there is no such architecture, or it does not build or run when reduced by general rules.

    Example:
        >>> load_small_hf("bert").module.config.num_hidden_layers
        2
    """
    return _load(SCHEME, model_type, small_hf_names(), batch)


def small_language_names() -> list[str]:
    """Return the model types that transformers has a language-model head for, causal or seq2seq, sorted.

    Example:
        >>> "gpt2" in small_language_names()
        True
    """
    import_library("transformers")
    from transformers.models.auto import modeling_auto as known

    causal, after_encoder = (
        known.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    )
    return sorted({*causal, *after_encoder})


def load_small_language_model(model_type: str, *, batch: int = 1) -> Model:
    """Build a small `model_type` with its language-model head, and check that it runs.

    Args:
        model_type: one of `small_language_names()`.
        batch: the batch size of the inputs.

    Raises:
        ZooError: as in `load_small_hf`.

    Example:
        >>> type(load_small_language_model("gpt2").module).__name__
        'GPT2LMHeadModel'
    """
    return _load(LANGUAGE_SCHEME, model_type, small_language_names(), batch)


def _load(scheme: str, model_type: str, known: list[str], batch: int) -> Model:
    if model_type not in known:
        raise ZooError(f"transformers has no model type {model_type!r}", remedy=nearest(model_type, known))
    refusal: Exception | None = None
    for step in STEPS:
        try:
            return _load_step(scheme, model_type, step, batch)
        except Exception as error:  # noqa: BLE001 - architectures fail in any way; the first error is chained
            logger.debug("%s does not work with %s: %s", model_type, step, error)
            refusal = refusal or error
    assert refusal is not None
    raise ZooError(
        f"it does not build and run in a small configuration ({one_line(refusal)})",
        where=f"{scheme}:{model_type}",
        remedy="write its small configuration in a file of your own: file.py::function",
    ) from refusal


def _class_for(scheme: str, model_type: str) -> Any:
    """Return the library's auto class that builds a model type."""
    import transformers
    from transformers.models.auto import modeling_auto as known

    if scheme == SCHEME:
        return transformers.AutoModel
    after_encoder = model_type in known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
    return transformers.AutoModelForSeq2SeqLM if after_encoder else transformers.AutoModelForCausalLM


def _load_step(scheme: str, model_type: str, step: Shrink, batch: int) -> Model:
    from transformers import CONFIG_MAPPING

    auto = _class_for(scheme, model_type)
    config = shrink_config(CONFIG_MAPPING[model_type](), step)
    config.architectures = config.architectures or []  # read by types with several base models
    with torch.device("meta"):
        parameters = sum(parameter.numel() for parameter in auto.from_config(config).parameters())
    if parameters > MOST_PARAMETERS:
        raise ZooError(f"its smallest configuration has {parameters:,} parameters")
    with fixed_seed():
        module: nn.Module = auto.from_config(config)
        wake_zero_weights(module)
    generation: Any = getattr(module, "generation_config", None)
    if scheme == LANGUAGE_SCHEME and config.is_encoder_decoder and generation.decoder_start_token_id is None:
        generation.decoder_start_token_id = 0
    module.eval()
    sizes = InputSizes(batch=batch, length=16, image_size=64, samples=4000, frames=64)
    inputs = make_inputs(module, config, sizes, try_out=True)
    return Model(f"{scheme}:{model_type}", module, (), inputs)

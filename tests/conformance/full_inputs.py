"""Builds small transformers models with a head and typical inputs: labels, and a mask with padding."""

from __future__ import annotations

import inspect
import itertools

import torch
from torch import Tensor, nn

from torchport.zoo.extras import import_library
from torchport.zoo.hf_input_makers import InputMaker, InputSizes
from torchport.zoo.hf_inputs import make_inputs
from torchport.zoo.hf_shrink import STEPS, shrink_config
from torchport.zoo.model import Model
from torchport.zoo.random_weights import fixed_seed, wake_zero_weights

# The kinds of heads in order of preference: those whose loss is part of the model first.
HEADS = (
    "CAUSAL_LM",
    "SEQ_TO_SEQ_CAUSAL_LM",
    "MASKED_LM",
    "IMAGE_TEXT_TO_TEXT",
    "SEQUENCE_CLASSIFICATION",
    "IMAGE_CLASSIFICATION",
    "AUDIO_CLASSIFICATION",
    "CTC",
    "SEMANTIC_SEGMENTATION",
    "VIDEO_CLASSIFICATION",
)
MASKS = ("attention_mask", "decoder_attention_mask")
SIZES = InputSizes(batch=2, length=16, image_size=64, samples=4000, frames=64)


def load_with_full_inputs(model_type: str) -> Model:
    """Build a small model, with a head if the architecture has one, and the masks and labels it takes."""
    transformers = import_library("transformers")
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto

    tables = [getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES") for head in HEADS]
    tables.append(modeling_auto.MODEL_MAPPING_NAMES)
    found = [table[model_type] for table in tables if model_type in table]
    names = [name if isinstance(name, str) else name[0] for name in found]
    refusal: Exception | None = None
    for name, step in itertools.product(names, STEPS):
        try:
            config = shrink_config(CONFIG_MAPPING[model_type](), step)
            with fixed_seed():
                module = getattr(transformers, name)._from_config(config)
                wake_zero_weights(module)
            module.eval()
            return Model(f"hf-small:{model_type}", module, (), _inputs(module, config))
        except Exception as error:  # noqa: BLE001 - each architecture raises its own errors
            refusal = refusal or error
    assert refusal is not None
    raise refusal


def _inputs(module: nn.Module, config) -> dict[str, Tensor]:
    made = make_inputs(module, config, SIZES, try_out=True)
    maker = InputMaker(module, config, SIZES)
    parameters = inspect.signature(module.forward).parameters
    for name in MASKS:
        tokens = made.get("input_ids" if name == "attention_mask" else "decoder_input_ids")
        if name in parameters and tokens is not None:
            mask = torch.ones_like(tokens)
            mask[0, -3:] = 0  # the first sample has padding at its end
            made = _if_taken(module, made, {name: mask})
    if "labels" in parameters:
        tokens = made.get("decoder_input_ids", made.get("input_ids"))
        forms = [] if tokens is None else [tokens.clone()]
        forms.append(maker.integers(2))
        for labels in forms:
            more = _if_taken(module, made, {"labels": labels})
            if "labels" in more:
                return more
    return made


def _if_taken(module: nn.Module, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> dict[str, Tensor]:
    try:
        with torch.no_grad(), fixed_seed():
            module(**inputs, **more)
    except Exception:  # noqa: BLE001 - a model may raise anything
        return inputs
    return {**inputs, **more}

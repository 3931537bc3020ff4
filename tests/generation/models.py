"""Small language models with random weights."""

from __future__ import annotations

import torch
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    LlamaConfig,
    LlamaForCausalLM,
)

from torchport.zoo.hf_shrink import STEPS, shrink_config


def tiny_llama(**changes: object) -> LlamaForCausalLM:
    """Return a Llama of two layers that is quick to build."""
    torch.manual_seed(0)
    sizes = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    model = LlamaForCausalLM(LlamaConfig(**{**sizes, **changes})).eval()
    return _endless(model)


def small_causal(model_type: str, **changes: object) -> torch.nn.Module:
    """Return a small causal language model of an architecture, with changes to its configuration."""
    return _endless(_small(model_type, AutoModelForCausalLM, changes))


def small_encoder_decoder(model_type: str, **changes: object) -> torch.nn.Module:
    """Return a small encoder-decoder model of an architecture, with changes to its configuration."""
    return _endless(_small(model_type, AutoModelForSeq2SeqLM, changes))


def _small(model_type: str, auto: type, changes: dict[str, object]) -> torch.nn.Module:
    refusal: Exception | None = None
    for step in STEPS:
        try:
            torch.manual_seed(0)
            config = shrink_config(CONFIG_MAPPING[model_type](), step)
            for name, value in changes.items():
                setattr(config, name, value)
            return auto.from_config(config).eval()
        except Exception as error:  # noqa: BLE001 - each architecture refuses in its own way
            refusal = error
    raise AssertionError(f"{model_type} cannot be built small") from refusal


def _endless(model: torch.nn.Module) -> torch.nn.Module:
    """Return a model that always generates the requested number of tokens."""
    config = model.generation_config
    config.eos_token_id = config.forced_eos_token_id = None
    config.pad_token_id = 0
    if model.config.is_encoder_decoder and config.decoder_start_token_id is None:
        config.decoder_start_token_id = 2
    return model


def padded_batch(length: int, vocabulary: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return three left-padded prompts of different lengths, and the mask."""
    ids = torch.randint(3, vocabulary, (3, length))
    mask = torch.ones_like(ids)
    mask[1, : length // 2] = 0
    mask[2, :1] = 0
    return ids * mask, mask

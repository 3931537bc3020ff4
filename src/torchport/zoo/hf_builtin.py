"""The configurations of a few well-known transformers models, so that they build without network.

The values are those of the `config.json` that the model's authors publish, without entries that do not affect
the model's structure.
"""

from __future__ import annotations

from collections.abc import Mapping

Configuration = Mapping[str, object]


def _sizes(hidden: int, layers: int, heads: int, intermediate: int) -> Configuration:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": intermediate,
    }


def _llama_rope(factor: float) -> Configuration:
    return {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


_BERT: Configuration = {
    "model_type": "bert",
    "architectures": ["BertForMaskedLM"],
    "vocab_size": 30522,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}

_LLAMA_3: Configuration = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "rope_parameters": _llama_rope(8.0),
}

CONFIGURATIONS: Mapping[str, Configuration] = {
    "bert-base-uncased": {**_BERT, **_sizes(768, 12, 12, 3072)},
    "bert-large-uncased": {**_BERT, **_sizes(1024, 24, 16, 4096)},
    "phiyodr/bert-large-finetuned-squad2": {
        **_BERT,
        "architectures": ["BertForQuestionAnswering"],
        **_sizes(1024, 24, 16, 4096),
    },
    "gpt2": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5,
        "bos_token_id": 50256,
        "eos_token_id": 50256,
    },
    "google/vit-base-patch16-224": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "image_size": 224,
        "patch_size": 16,
        "num_channels": 3,
        **_sizes(768, 12, 12, 3072),
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "qkv_bias": True,
        "num_labels": 1000,
    },
    "meta-llama/Llama-3.2-1B": {
        **_LLAMA_3,
        **_sizes(2048, 16, 32, 8192),
        "head_dim": 64,
        "tie_word_embeddings": True,
        "rope_parameters": _llama_rope(32.0),
    },
    "meta-llama/Llama-3.1-8B": {**_LLAMA_3, **_sizes(4096, 32, 32, 14336)},
    "meta-llama/Llama-3.1-405B": {**_LLAMA_3, **_sizes(16384, 126, 128, 53248)},
    # Not a published model: every part of a Llama at a size that runs in milliseconds.
    "tiny-llama": {
        **_LLAMA_3,
        "vocab_size": 1000,
        "bos_token_id": 1,
        "eos_token_id": 2,
        **_sizes(64, 2, 4, 128),
        "num_key_value_heads": 2,
    },
}

ALIASES: Mapping[str, str] = {
    "google-bert/bert-base-uncased": "bert-base-uncased",
    "google-bert/bert-large-uncased": "bert-large-uncased",
    "openai-community/gpt2": "gpt2",
    "vit-base": "google/vit-base-patch16-224",
    "vit-base-patch16-224": "google/vit-base-patch16-224",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "llama-3.1-405b": "meta-llama/Llama-3.1-405B",
}

# The entries of CONFIGURATIONS that have no published weights.
WITHOUT_WEIGHTS = frozenset({"tiny-llama"})


def full_name(name: str) -> str:
    """Return the full name that `name` is an alias of, or `name` itself.

    Example:
        >>> full_name("vit-base")
        'google/vit-base-patch16-224'
    """
    return ALIASES.get(name, name)

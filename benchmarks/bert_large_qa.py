"""BERT-large with a question-answering head, 384 tokens: `benchmarks/bert_large_qa.py::load`."""

import torch

from torchport.zoo.torchvision_ops import ensure_torchvision_ops


def load():
    """Return the model, and inputs of a question with its context, padded on the right."""
    ensure_torchvision_ops()  # transformers imports torchvision, whose compiled ops may not match this torch
    from transformers import BertConfig, BertForQuestionAnswering

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    tokens = torch.randint(config.vocab_size, (1, 384))
    place = torch.arange(384).unsqueeze(0)
    inputs = {
        "input_ids": tokens,
        "attention_mask": (place < 350).long(),
        "token_type_ids": (place >= 20).long(),
    }
    return BertForQuestionAnswering(config).eval(), (), inputs

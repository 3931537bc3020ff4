"""Explains rows of the table without weights: what the ttnn target would support of each model."""

from __future__ import annotations

import torch
from models import GENERATING, load, options_of
from rows import Explained, reasons

import torchport
from torchport.errors import one_line
from torchport.records import Coverage
from torchport.zoo.meta_parameters import parameters_without_values
from torchport.zoo.model import Model


def explain_row(name: str) -> Explained:
    """Explain one row; whatever a model raises is in the record."""
    try:
        found = _explain_step(name) if name in GENERATING else _explain(name)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row is lost
        return Explained(name, error=one_line(error))
    return Explained(
        name,
        ops_before=found.ops_before,
        ops_remain=found.ops_remain,
        transfers=found.transfers,
        flops=found.flops,
        conditional=len(found.conditional),
        reasons=reasons([found]),
    )


def _explain(name: str) -> Coverage:
    model = _without_weights(name)
    options = options_of(name)
    return torchport.explain(
        model.module, model.args, model.kwargs, target="ttnn", options=options, name=name
    )


def _explain_step(name: str) -> Coverage:
    """Explain the decoding step of a row; an encoder has to be run for it, so it gets weights."""
    model = load(name)
    prompt = dict(model.kwargs)
    [given] = prompt.values()
    has_encoder = model.module.config.is_encoder_decoder  # type: ignore[union-attr]  # one of transformers'
    length = GENERATING[name] + (1 if has_encoder else 0) + (given.shape[1] if given.dim() == 2 else 0)
    found = torchport.explain_generation(
        model.module, target="ttnn", prompt=prompt, max_length=length, name=name
    )
    return found.calls["step"]


def _without_weights(name: str) -> Model:
    """Return a row's model on the `meta` device, or with only its parameters there."""
    try:
        with torch.device("meta"):
            return load(name)
    except NotImplementedError:  # its constructor computes with tensors, as RegNet's does
        with parameters_without_values():
            return load(name)

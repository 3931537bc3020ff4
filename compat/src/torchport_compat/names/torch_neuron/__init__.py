"""torchport's tracing under the name of PyTorch-Neuron: importing it defines `torch.neuron`."""

from torchport_compat.naming import claim

claim(__name__)

import sys

import torch

from torch_neuron import neuron
from torch_neuron.neuron import analyze_model, trace
from torchport_compat.naming import NameTaken

__all__ = ["analyze_model", "trace"]

_other = getattr(torch, "neuron", neuron)
if _other is not neuron:
    raise NameTaken("torch.neuron already exists, and is not torchport's", where=repr(_other))
torch.neuron = neuron  # type: ignore[attr-defined]  # as the real package does
sys.modules.setdefault("torch.neuron", neuron)

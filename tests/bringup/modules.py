"""Small models, each with one trait that makes measuring hard."""

import torch
from torch import nn
from transformers import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast

from torchport.zoo import Model


class Doubles(nn.Module):
    """Mutates its input and returns nothing new."""

    def forward(self, x):
        return x.mul_(2)


class Counts(nn.Module):
    """Returns a buffer that each call changes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, x):
        self.calls.add_(1)
        return self.calls, x + self.calls


class Rolls(nn.Module):
    """Returns random numbers."""

    def forward(self, x):
        return x + torch.rand_like(x)


class Remembers(nn.Module):
    """Returns a cache, of a class that torch does not know, within a model output."""

    def forward(self, x):
        cache = DynamicCache()
        cache.update(x.reshape(1, 1, 1, -1), 2 * x.reshape(1, 1, 1, -1), 0)
        return BaseModelOutputWithPast(last_hidden_state=x + 1, past_key_values=cache)


class Raises(nn.Module):
    """Fails when it is called."""

    def forward(self, x):
        raise ValueError("no such\nluck")


def linear() -> Model:
    torch.manual_seed(0)
    return Model("linear", nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval(), (torch.randn(5, 4),))


def model(module: nn.Module, *args: object, **kwargs: object) -> Model:
    return Model(type(module).__name__, module.eval(), args or (torch.ones(2),), kwargs)

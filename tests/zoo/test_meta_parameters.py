"""Parameters without values: built at once, still tied, next to tensors that keep their values."""

import torch
from torch import nn

from torchport import zoo
from torchport.zoo.meta_parameters import parameters_without_values


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        widths = torch.linspace(2, 4, 2).int().tolist()  # reads values while it is built
        self.first = nn.Linear(*widths)
        self.second = nn.Linear(*widths, bias=False)
        self.second.weight = self.first.weight
        self.scale = torch.full((2,), 3.0)


def test_parameters_have_none_and_other_tensors_have():
    with parameters_without_values():
        module = Tied()
    assert all(parameter.is_meta for parameter in module.parameters())
    assert module.first.weight is module.second.weight
    assert module.scale.tolist() == [3.0, 3.0]
    assert not nn.Linear(1, 1).weight.is_meta


def test_a_model_that_reads_values_while_it_is_built_is_built_without_those_of_its_weights():
    model = zoo.load("torchvision:regnet_y_400mf", weights=False, device="meta")
    assert all(tensor.is_meta for tensor in [*model.module.parameters(), *model.module.buffers()])
    assert model.module(*model.args).shape == (1, 1000)

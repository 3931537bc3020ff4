"""Models whose source lines and module paths the tests look up."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.dense(x))  # the line of tanh


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return helper(x)


def helper(x):
    return torch.cumsum(x, 0)  # the line of cumsum


class Raises(nn.Module):
    def forward(self, x):
        raise KeyError("no such head")  # the line that raises


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # the line that branches
            return x
        return -x


class CountsRows(nn.Module):
    def forward(self, x):
        return x[x > 0].tolist()  # the line that asks for values


def line_of(marker):
    """Return `models.py:12` for the line of this file that ends with the marker comment."""
    with open(__file__, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.rstrip().endswith(f"# {marker}"):
                return f"{__file__}:{number}"
    raise AssertionError(marker)

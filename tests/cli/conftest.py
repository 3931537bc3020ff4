"""Runs commands in this process, each on its own consoles."""

import io
import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from torchport.cli.main import run
from torchport.cli.output import Output

MODELS = '''
"""Models for the tests of the commands."""
import torch
from torch import nn

print("a model's file may print")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return {"logits": self.encoder(x)}


class Broken(nn.Module):
    def forward(self, x):
        raise ValueError("three is odd")


def load():
    return Net(), (torch.ones(2, 4),)


def load_without_inputs():
    return Net()


def inputs():
    return torch.ones(7, 4)


def load_broken():
    return Broken(), (torch.ones(2, 4),)
'''


@dataclass(frozen=True)
class Ran:
    """The outcome of a command: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def command():
    """Runs a command line: `command("report", "out")`."""

    def call(*arguments: object, width: int = 120) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        words = [str(argument) for argument in arguments]
        output = Output(
            Console(file=out, width=width),
            Console(file=err, width=width),
            json="--json" in words,
            debug="--debug" in words,
        )
        return Ran(run(words, output), out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Return a file with models to load."""
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path

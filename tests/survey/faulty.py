"""Models that do to their process what models do: some work, the others each in their own way do not."""

import ctypes
import os
import signal
import sys
import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).relu()


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        x = self.fc(x)
        return x.relu() if x.sum() > 0 else x.tanh()


def works():
    return Net(), (torch.rand(2, 4),)


works_too = also_works = works_as_well = works


def branches():
    return Branches(), (torch.rand(2, 4),)


def raises():
    raise ValueError("three is odd")


def hangs():
    time.sleep(1000)


def eats_memory():
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20)) * 64)


def segfaults():
    ctypes.string_at(0)


def kills_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_worker():
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def leaves():
    sys.exit(3)

"""Models for tests of surveys: some work, the others fail or harm their process, each in its own way."""

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


def raises_half_a_pair():
    raise ValueError("no such file: \udc80\ud800.bin")


def raises_megabytes():
    from torchport.errors import TorchportError

    raise TorchportError("begin " + "x" * 5_000_000 + " end", where="here", remedy="there")


def raises_unspeakably():
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    raise Unspeakable


def quits():
    os._exit(0)


def quits_with_a_code():
    os._exit(7)


def _note(name):
    with open(os.path.join(os.environ["FAULTY_NOTES"], f"{os.getpid()}-{name}"), "w"):
        pass
    time.sleep(1000)
    os._exit(0)


def _start_families():
    """Start a child, one in a session of its own, and an orphaned daemon; wait until all are running."""
    if os.fork() == 0:
        _note("child")
    if os.fork() == 0:
        os.setsid()
        _note("session")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _note("daemon")
        os._exit(0)
    while len(os.listdir(os.environ["FAULTY_NOTES"])) < 3:
        time.sleep(0.01)


def leaves_families():
    _start_families()
    return works()


def leaves_families_and_hangs():
    _start_families()
    time.sleep(1000)


def leaves_families_and_crashes():
    _start_families()
    os.kill(os.getpid(), signal.SIGSEGV)


def leaves_families_and_kills_its_worker():
    _start_families()
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def shares_memory():
    """Hold 200 MB that four forked children share."""
    held = bytearray(os.urandom(1 << 20)) * 200
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            time.sleep(1.5)
            os._exit(len(held) % 2)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return works()

"""Models that threads share, and the legal results of their calls, for thread-safety tests."""

import sys
import threading
from collections.abc import Callable, Sequence

import torch
from torch import nn


class Tied(nn.Module):
    """Uses one weight twice."""

    def __init__(self):
        super().__init__()
        self.down = nn.Linear(4, 4, bias=False)
        self.up = nn.Linear(4, 4, bias=False)
        self.up.weight = self.down.weight

    def forward(self, x):
        return self.up(self.down(x).relu())


class Normed(nn.Module):
    """Has buffers as well as parameters."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x))


class Recurrent(nn.Module):
    """Also holds its weights in a list of its own."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        return self.lstm(x[None])[0][0]


class Caches(nn.Module):
    """Caches what it computed: in an attribute, in a dict, and in an object that it holds."""

    class Store:
        """Holds a tensor."""

        def __init__(self):
            self.row = None

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.ramp = None
        self.tables = {}
        self.store = self.Store()

    def forward(self, x):
        if self.ramp is None:
            self.ramp = torch.arange(4.0)
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.ones(4) * len(x)
        if self.store.row is None:
            self.store.row = torch.ones(4) / 2
        return self.linear(x) + self.ramp + self.tables[len(x)] + self.store.row


SHARED = {"tied": Tied, "normed": Normed, "recurrent": Recurrent, "caches": Caches}


class Shared:
    """A model that threads call while one of them switches its weights between two sets.

    Args:
        make: constructs the model.
        rows: the number of rows of each input.
    """

    def __init__(self, make: Callable[[], nn.Module], rows: Sequence[int]) -> None:
        torch.manual_seed(0)
        self.module = make().eval()
        other = make().eval()
        self.states = [
            {key: value.clone() for key, value in m.state_dict().items()} for m in (self.module, other)
        ]
        self.inputs = [torch.randn(count, 4) for count in rows]
        with torch.no_grad():
            self.legal = [[m(x) for m in (self.module, other)] for x in self.inputs]

    def problem(self, index: int, result: object) -> str:
        """Return what is wrong with a result; empty if it matches one of the two sets of weights."""
        if type(result) is not torch.Tensor:
            return f"a {type(result).__name__}"
        if not any(torch.allclose(result, legal, atol=1e-4) for legal in self.legal[index]):
            return "neither the one nor the other"
        return ""


def run_threads(works: Sequence[Callable[[], str]], calls: int) -> list[str]:
    """Call each function `calls` times in its own thread; return the problems found."""
    problems: list[str] = []
    together = threading.Barrier(len(works))

    def repeat(work: Callable[[], str]) -> None:
        together.wait()
        for _ in range(calls):
            try:
                found = work()
            except BaseException as error:  # noqa: BLE001  # whatever it is, it is what the test is about
                found = f"{type(error).__name__}: {error}"
            if found:
                problems.append(found)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=600)
            if thread.is_alive():
                return [*problems, "a thread hangs"]
    finally:
        sys.setswitchinterval(before)
    return problems

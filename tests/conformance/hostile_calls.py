"""Calls every op that files may call with invalid arguments, in a process that must not crash.

python -m conformance.hostile_calls TRIALS PROGRESS
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import signal
import sys
import warnings
from pathlib import Path

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from torchport.targets.checked_ops import CHECKED
from torchport.targets.permitted_ops import why_refused

INTS = [-1, 0, 1, 2, 3, 5, -2, -7, 17, 64, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, 1.0, -1.0, 0.5, 3.7, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"), 1e-300]
TEXTS = ["", "mean", "sum", "tanh", "none", "\0", "ij,jk->ik", "left", "reduced"]
DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64, torch.int32,
    torch.int8, torch.uint8, torch.bool,
]  # fmt: skip
FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d]


def permitted_ops() -> list[torch._ops.OpOverload]:
    """Return every ATen op that a file may call."""
    found = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        base, _, overload = name.removeprefix("aten::").partition(".")
        op = getattr(getattr(torch.ops.aten, base, None), overload or "default", None)
        if name.startswith("aten::") and op is not None and (str(op) in CHECKED or not why_refused(op)):
            found.append(op)
    return found


class _Samples(TorchDispatchMode):
    """Records calls with valid arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, list] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        noted = self.calls.setdefault(str(func), [])
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if len(noted) < 4 and all(t.layout is torch.strided and t.numel() < 4000 for t in tensors):
            noted.append(tree_map_only(torch.Tensor, lambda t: t.detach().clone(), (args, kwargs or {})))
        return func(*args, **(kwargs or {}))


def samples() -> dict[str, list]:
    """Return calls from torch's own samples, by op name."""
    mode = _Samples()
    for op in op_db:
        for dtype in (torch.float32, torch.int64):
            if op.name.startswith("jiterator") or dtype not in op.supported_dtypes("cpu"):
                continue
            try:
                for sample in itertools.islice(op.sample_inputs("cpu", dtype), 4):
                    with mode:
                        op(sample.input, *sample.args, **sample.kwargs)
            except Exception:  # noqa: BLE001  # a sample that this machine cannot run
                continue
    return mode.calls


def tensor(draw: random.Random, like: object) -> torch.Tensor:
    """Return an invalid tensor: a changed copy of a valid one, or an arbitrary one."""
    if isinstance(like, torch.Tensor) and draw.random() < 0.7:
        whole = not like.is_floating_point() and not like.is_complex() and like.dtype is not torch.bool
        changes = [
            lambda: like.flatten(),
            lambda: like.to(draw.choice(DTYPES)),
            lambda: like.unsqueeze(0),
            lambda: like[..., : draw.randrange(3)].contiguous(),
            lambda: torch.full_like(like, draw.choice([-1, 100]) if whole else 1e30),
            lambda: like[:0],
            lambda: torch.cat([like, like], draw.randrange(like.dim())),
        ]
        try:
            return draw.choice(changes)()
        except (RuntimeError, IndexError, ValueError):
            return like
    shape = [draw.choice([0, 1, 2, 3, 4, 5]) for _ in range(draw.randrange(6))]
    return (torch.rand(shape) * 12 - 3).to(draw.choice(DTYPES))


def argument(draw: random.Random, kind: str, like: object) -> object:
    """Return a random value for a schema's type."""
    if kind.startswith("Optional["):
        return None if draw.random() < 0.3 else argument(draw, kind[9:-1], like)
    if kind.startswith("List["):
        items = list(like) if isinstance(like, (list, tuple)) else []
        if not items or draw.random() < 0.2:
            return [argument(draw, kind[5:-1], None) for _ in range(draw.randrange(6))]
        place = draw.randrange(len(items))
        items[place] = argument(draw, kind[5:-1], items[place])
        return items[: draw.randrange(len(items) + 1)] if draw.random() < 0.2 else items
    choices = {
        "int": INTS, "float": FLOATS, "number": INTS + FLOATS, "bool": [True, False], "str": TEXTS,
        "ScalarType": DTYPES, "Layout": [torch.strided], "MemoryFormat": FORMATS,
    }  # fmt: skip
    if kind == "Tensor":
        return tensor(draw, like)
    return draw.choice(choices[kind]) if kind in choices else None


def hostile_call(op: torch._ops.OpOverload, noted: list, draw: random.Random) -> tuple[list, dict]:
    """Return random positional and keyword arguments for an op."""
    arguments = op._schema.arguments
    if noted and draw.random() < 0.85:
        args, kwargs = draw.choice(noted)
        given = dict(zip([item.name for item in arguments], args, strict=False)) | kwargs
        for item in draw.sample(arguments, min(len(arguments), draw.choice((1, 1, 2, 3)))):
            given[item.name] = argument(draw, str(item.real_type), given.get(item.name))
    else:
        wanted = [item for item in arguments if not item.has_default_value() or draw.random() < 0.3]
        given = {item.name: argument(draw, str(item.real_type), None) for item in wanted}
    names = [item.name for item in arguments if not item.kwarg_only]
    positional = list(itertools.takewhile(lambda name: name in given, names))
    return [given.pop(name) for name in positional], {k: v for k, v in given.items() if k not in names}


def call_from(first: int, trials: int, noted: dict[str, list], progress: Path) -> None:
    """Call the ops starting with number `first`; the file `progress` always holds the current one."""
    limit = 10 << 30  # of address space: larger allocations fail
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number, op in list(enumerate(permitted_ops()))[first:]:
        draw = random.Random(str(op))
        for _ in range(trials):
            args, kwargs = hostile_call(op, noted.get(str(op), []), draw)
            progress.write_text(f"{number} {op} {str(args)[:500]} {str(kwargs)[:300]}")
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            before = [leaf._version for leaf in tensors]
            signal.alarm(10)
            with contextlib.suppress(Exception):  # any exception is a refusal
                CHECKED.get(str(op), op)(*args, **kwargs)
            signal.alarm(0)
            if [leaf._version for leaf in tensors] != before:
                raise SystemExit(f"{op} writes to its arguments")


def main(trials: int, progress: Path) -> None:
    """Call all ops in child processes: a call that takes long, as with large sizes, is ended and skipped."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    noted = samples()
    first = 0
    while True:
        child = os.fork()
        if child == 0:
            call_from(first, trials, noted, progress)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        at = progress.read_text()
        if status == 0:
            print("done")
            return
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGALRM:
            raise SystemExit(f"ended with {status} at {at}")
        print("slow:", *at.split()[:2])
        first = int(at.split()[0]) + 1


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

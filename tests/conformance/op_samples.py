"""Compares compiled ops with eager torch on torch's own samples of every op; does not need pytest."""

from __future__ import annotations

import copy
import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

import torchport
from torchport.errors import CaptureError
from torchport.structure import flatten
from torchport.verification import HALVES, coarsest_step, half_difference

try:
    import expecttest  # noqa: F401  # torch.testing._internal imports it
except ImportError:  # on a machine with only torch; only these names of it are needed
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase, stand_in.ACCEPT = unittest.TestCase, False
    sys.modules["expecttest"] = stand_in

from torch.testing._internal.common_methods_invocations import op_db

SAMPLES = 3
DTYPES = (torch.float32, torch.int64, torch.bool)

# Their results are not determined by their inputs: uninitialized memory, or random numbers. A separate test
# checks that random ops draw as eager torch does; these samples set the seed inside the op.
UNDETERMINED = frozenset(
    """
    bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
    multinomial new_empty new_empty_strided normal rand_like randint randint_like randn randn_like uniform
    nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.rrelu
    """.split()
)

# `jiterator_…` ops run only on GPUs.
OPS = [op for op in op_db if op.name not in UNDETERMINED and not op.name.startswith("jiterator")]


def name_of(op: object) -> str:
    """Return an op's name, including its variant's."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


def own_copy(value: object) -> object:
    """Return a copy that keeps a tensor's whole storage: some samples are views of a part of theirs."""
    flat = flatten(value)
    return flat.structure.rebuild([_copy_tensor(leaf.detach()) for leaf in flat.leaves])


def _copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(tensor) if tensor.layout is torch.strided else tensor.clone()


def is_random(sample: object) -> bool:
    """Whether a sample draws random numbers for dropout, by a keyword or, in training, by a number."""
    numbers = [value for value in sample.args if isinstance(value, float) and 0 < value < 1]
    return bool(sample.kwargs.get("dropout_p") or (sample.kwargs.get("training") and numbers))


@dataclass(frozen=True)
class Sample:
    """A call of an op, and its description for problem reports."""

    op: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    what: str
    dtype: torch.dtype = torch.float32

    def expected(self) -> list[torch.Tensor]:
        """Return eager torch's results."""
        return flatten(self.op(*own_copy(self.args), **own_copy(self.kwargs))).leaves

    def exact(self) -> list[torch.Tensor]:
        """Return eager torch's results in float32, for a sample in half precision."""
        return flatten(self.op(*_widened(self.args), **_widened(self.kwargs))).leaves


def samples_of(op: object, dtypes: Sequence[torch.dtype] = DTYPES, device: str = "cpu") -> Iterator[Sample]:
    """Yield the first samples of an op in each dtype that it supports there."""
    for dtype in dtypes:
        if dtype not in op.supported_dtypes(device):
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(itertools.islice(op.sample_inputs(device, dtype), SAMPLES)):
            if not is_random(sample):
                what = f"{name_of(op)} {dtype} sample {number}"
                yield Sample(op, (sample.input, *sample.args), sample.kwargs, what, dtype)


def _widened(value: object) -> object:
    """Return the arguments in float32: their tensors, and the dtypes among them."""
    flat = flatten(value)
    wide = flat.structure.rebuild([_wide_copy(leaf.detach()) for leaf in flat.leaves])
    if isinstance(wide, dict):
        return {key: _wide_dtype(item) for key, item in wide.items()}
    return tuple(map(_wide_dtype, wide)) if isinstance(wide, tuple) else wide


def _wide_dtype(item: object) -> object:
    return torch.float32 if isinstance(item, torch.dtype) and item in HALVES else item


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in HALVES or tensor.layout is not torch.strided:
        return tensor.float() if tensor.dtype in HALVES else _copy_tensor(tensor)
    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
    return memory.float().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def check_together(samples: list[Sample], engine: str) -> list[str]:
    """Return the problems of samples compiled as one graph, or as halves if that graph is not built."""
    if len(samples) > 1:
        try:
            actual = run_compiled(samples, engine, whole=True)
        except Exception as error:  # halving shows which sample causes it
            if is_fatal(error):
                raise
            actual = None
        if actual is None:
            middle = len(samples) // 2
            return check_together(samples[:middle], engine) + check_together(samples[middle:], engine)
        return problems_of(samples, actual)
    if not samples:
        return []
    try:
        actual = run_compiled(samples, engine)
    except Exception as error:  # the other samples are still checked
        if is_fatal(error):
            raise
        return [f"{samples[0].what}: {type(error).__name__}: {error}"]
    return [] if actual is None else problems_of(samples, actual)


def is_fatal(error: Exception) -> bool:
    """Whether an error has made the GPU unusable for this process."""
    said = f"{error} {error.__cause__}"
    return "device-side assert" in said or "illegal memory access" in said or "unspecified launch" in said


def run_compiled(
    samples: list[Sample], engine: str, *, whole: bool = False
) -> list[list[torch.Tensor]] | None:
    """Return the results of compiled ops; None if refused, or if `whole` is set and some stayed in eager."""

    def together(calls: list[tuple[tuple[object, ...], dict[str, object]]]) -> list[object]:
        return [sample.op(*args, **kwargs) for sample, (args, kwargs) in zip(samples, calls, strict=True)]

    def calls() -> list[object]:
        return [(own_copy(sample.args), own_copy(sample.kwargs)) for sample in samples]

    try:
        compiled = torchport.compile(
            together,
            (calls(),),
            target=engine,
            # No child processes: one per sample would take hours, and a crash is noticed here as well.
            options={"check": False, "cache": False, "child_trial": False},
        )
    except CaptureError:
        return None
    actual = compiled(calls())
    failed = any(row.reason == "build_failed" for row in compiled.coverage.stayed)
    if whole and (failed or compiled.fallbacks.fallbacks):
        return None
    return [flatten(result).leaves for result in actual]


def problems_of(samples: list[Sample], actual: list[list[torch.Tensor]]) -> list[str]:
    """Return the samples whose compiled results differ from eager torch's."""
    found = []
    for sample, results in zip(samples, actual, strict=True):
        try:
            expected = sample.expected()
        except RuntimeError:  # nothing to compare with: eager torch rejects its own sample
            continue
        is_half = sample.dtype in HALVES
        problem = _half_problem(sample, results, expected) if is_half else _problem(results, expected)
        # Eager torch may differ from itself, by drawing random numbers or leaving memory uninitialized.
        if problem and not _problem(sample.expected(), expected):
            found.append(f"{sample.what}: {problem}")
    return found


def _problem(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    try:
        torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-3, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return str(error)
    return ""


def _half_problem(sample: Sample, actual: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    """Return how results are further from the float32 results than eager torch's are."""
    try:
        widened = sample.exact()
    except RuntimeError:  # an op that supports only half precision
        widened = [result.float() if result.dtype in HALVES else result for result in expected]
    for mine, eager, exact in zip(actual, expected, widened, strict=True):
        if (mine.dtype, mine.shape, mine.layout) != (eager.dtype, eager.shape, eager.layout):
            return f"it is {mine.dtype} {tuple(mine.shape)}, eager's is {eager.dtype} {tuple(eager.shape)}"
        dense = [tensor.to_dense() for tensor in (mine, eager, exact)]
        problem = half_difference(*dense, step=coarsest_step([sample.dtype]))
        if problem:
            return problem
    return ""

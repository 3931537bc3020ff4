"""Never wrong: over torch's own samples of every op, the compiled result equals eager torch.

The islands' trial is turned off here, so that what is tested are the target's verdicts themselves.
The whole sweep is `make conformance`; every forty-eighth op runs in `make test`.

onnxruntime and inductor take seconds to build anything at all, so that all samples of eight ops are one graph
for them. Where that is refused, is not built or runs with eager torch after all, its halves are tried, down
to one sample: nothing hides behind its neighbours.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import torchport
from torchport.errors import CaptureError
from torchport.structure import flatten
from torchport.verification import HALVES, coarsest_step, half_difference

SAMPLES = 3
DTYPES = (torch.float32, torch.int64, torch.bool)

# Their results are not determined by their inputs: memory that nobody wrote, or random numbers. That
# random ops draw as eager torch does is tested by itself; these samples set the seed inside the op.
UNDETERMINED = frozenset(
    """
    bernoulli cauchy empty empty_like empty_permuted empty_strided exponential geometric log_normal
    multinomial new_empty new_empty_strided normal rand_like randint randint_like randn randn_like uniform
    nn.functional.alpha_dropout nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d
    nn.functional.feature_alpha_dropout nn.functional.fractional_max_pool2d
    nn.functional.fractional_max_pool3d nn.functional.rrelu
    """.split()
)


def _name(op: object) -> str:
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name


# `jiterator_…` ops run on GPUs alone.
OPS = [op for op in op_db if op.name not in UNDETERMINED and not op.name.startswith("jiterator")]
SLICE = [
    pytest.param(op, id=_name(op), marks=[] if index % 48 == 5 else [pytest.mark.conformance])
    for index, op in enumerate(OPS)
]
TOGETHER = 8  # ops in one graph
GROUPS = [
    pytest.param(OPS[first : first + TOGETHER], id=f"{_name(OPS[first])}-and-{TOGETHER - 1}-more")
    for first in range(0, len(OPS), TOGETHER)
]
IN_MAKE_TEST = GROUPS[3]


def _copy(value: object) -> object:
    """A copy with all of a tensor's memory: some samples show a part of theirs."""
    flat = flatten(value)
    return flat.structure.rebuild([_own_copy(leaf.detach()) for leaf in flat.leaves])


def _own_copy(tensor: torch.Tensor) -> torch.Tensor:
    return copy.deepcopy(tensor) if tensor.layout is torch.strided else tensor.clone()


def is_random(sample: object) -> bool:
    """Whether a sample draws random numbers: it drops out, by a keyword or, in training, by a number."""
    numbers = [value for value in sample.args if isinstance(value, float) and 0 < value < 1]
    return bool(sample.kwargs.get("dropout_p") or (sample.kwargs.get("training") and numbers))


@dataclass(frozen=True)
class Sample:
    """A call of an op, and what to say of it if it goes wrong."""

    op: Callable[..., object]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    what: str

    def expected(self) -> list[torch.Tensor]:
        """What eager torch gives."""
        return flatten(self.op(*_copy(self.args), **_copy(self.kwargs))).leaves


def _samples(op: object) -> Iterator[Sample]:
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
            if not is_random(sample):
                what = f"{_name(op)} {dtype} sample {number}"
                yield Sample(op, (sample.input, *sample.args), sample.kwargs, what)


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("op", SLICE)
def test_is_as_close_to_float32_as_eager_in_half_precision(op: object, dtype: torch.dtype) -> None:
    if dtype not in op.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
        if is_random(sample):
            continue
        one = Sample(op, (sample.input, *sample.args), sample.kwargs, f"{_name(op)} {dtype} sample {number}")
        actual = _compiled([one], "openvino")
        if actual is None:
            continue
        wide = flatten(op(*_widened(one.args), **_widened(one.kwargs))).leaves
        for mine, eager, exact in zip(actual[0], one.expected(), wide, strict=True):
            assert (mine.dtype, mine.shape, mine.layout) == (eager.dtype, eager.shape, eager.layout)
            dense = [tensor.to_dense() for tensor in (mine, eager, exact)]
            problem = half_difference(*dense, step=coarsest_step([dtype]))
            assert not problem, f"{one.what}: {problem}"


def _widened(value: object) -> object:
    """The same in float32: its tensors, and the dtypes that it names."""
    flat = flatten(value)
    wide = flat.structure.rebuild([_wide_copy(leaf.detach()) for leaf in flat.leaves])
    if isinstance(wide, dict):
        return {key: _wide_dtype(item) for key, item in wide.items()}
    return tuple(map(_wide_dtype, wide)) if isinstance(wide, tuple) else wide


def _wide_dtype(item: object) -> object:
    return torch.float32 if isinstance(item, torch.dtype) and item in HALVES else item


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in HALVES or tensor.layout is not torch.strided:
        return tensor.float() if tensor.dtype in HALVES else _own_copy(tensor)
    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
    return memory.float().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@pytest.mark.parametrize("op", SLICE)
def test_equals_eager_on_torchs_own_samples(op: object) -> None:
    for sample in _samples(op):
        actual = _compiled([sample], "openvino")
        problems = [] if actual is None else _problems([sample], actual)
        assert not problems, problems


@pytest.mark.parametrize("ops", [IN_MAKE_TEST])
def test_an_engine_equals_eager_on_torchs_own_samples(ops: list[object]) -> None:
    _check_engine(ops, "onnxruntime")


@pytest.mark.conformance
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("engine", ["onnxruntime", "inductor"])
@pytest.mark.parametrize("ops", GROUPS)
def test_the_other_engines_equal_eager_on_torchs_own_samples(ops: list[object], engine: str) -> None:
    _check_engine(ops, engine)


def _check_engine(ops: list[object], engine: str) -> None:
    problems = _check_together([sample for op in ops for sample in _samples(op)], engine)
    assert not problems, "\n".join(problems)


def _check_together(samples: list[Sample], engine: str) -> list[str]:
    """Return what is wrong with samples that are compiled as one graph, or halves where it is not built."""
    if len(samples) > 1:
        try:
            actual = _compiled(samples, engine, whole=True)
        except Exception:  # noqa: BLE001  # whose it is shows when it is alone
            actual = None
        if actual is None:
            middle = len(samples) // 2
            return _check_together(samples[:middle], engine) + _check_together(samples[middle:], engine)
        return _problems(samples, actual)
    try:
        actual = _compiled(samples, engine)
    except Exception as error:  # noqa: BLE001  # the others are looked at too
        return [f"{samples[0].what}: {type(error).__name__}: {error}"]
    return [] if actual is None else _problems(samples, actual)


def _compiled(samples: list[Sample], engine: str, *, whole: bool = False) -> list[list[torch.Tensor]] | None:
    """What compiled ops give; None if they are refused, or if the whole is wanted and some did not run."""

    def together(calls: list[tuple[tuple[object, ...], dict[str, object]]]) -> list[object]:
        return [sample.op(*args, **kwargs) for sample, (args, kwargs) in zip(samples, calls, strict=True)]

    def calls() -> list[object]:
        return [(_copy(sample.args), _copy(sample.kwargs)) for sample in samples]

    try:
        compiled = torchport.compile(
            together,
            (calls(),),
            target=engine,
            # Without children: one for each sample would take hours, and who crashes is seen here as well.
            options={"check": False, "cache": False, "child_trial": False},
        )
    except CaptureError:
        return None
    actual = compiled(calls())
    failed = any(row.reason == "build_failed" for row in compiled.coverage.stayed)
    if whole and (failed or compiled.fallbacks.fallbacks):
        return None
    return [flatten(result).leaves for result in actual]


def _problems(samples: list[Sample], actual: list[list[torch.Tensor]]) -> list[str]:
    found = []
    for sample, results in zip(samples, actual, strict=True):
        try:
            torch.testing.assert_close(
                results, sample.expected(), rtol=1e-3, atol=1e-3, equal_nan=True, check_stride=False
            )
        except AssertionError as error:
            found.append(f"{sample.what}: {error}")
    return found

"""Never wrong: over torch's own samples of every op, the compiled result equals eager torch.

The islands' trial is turned off here, so that what is tested are the target's verdicts themselves.
The whole sweep is `make conformance`; every forty-eighth op runs in `make test`, of other engines fewer.
"""

from __future__ import annotations

import copy
import itertools

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
# Of how many ops one runs in `make test`.
ENGINES = {"openvino": 48, "onnxruntime": 96, "inductor": 0}
SLICE = [
    pytest.param(
        op,
        engine,
        id=_name(op) if engine == "openvino" else f"{_name(op)}-{engine}",
        marks=[] if every and index % every == 5 else [pytest.mark.conformance],
    )
    for engine, every in ENGINES.items()
    for index, op in enumerate(OPS)
]


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


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize(("op", "engine"), [one for one in SLICE if one.values[1] == "openvino"])
def test_is_as_close_to_float32_as_eager_in_half_precision(
    op: object, engine: str, dtype: torch.dtype
) -> None:
    if dtype not in op.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
        if is_random(sample):
            continue
        args, kwargs = (sample.input, *sample.args), sample.kwargs
        found = _run(op, engine, args, kwargs)
        if found is None:
            continue
        wide = flatten(op(*_widened(args), **_widened(kwargs))).leaves
        for mine, eager, exact in zip(*found, wide, strict=True):
            assert (mine.dtype, mine.shape, mine.layout) == (eager.dtype, eager.shape, eager.layout)
            dense = [tensor.to_dense() for tensor in (mine, eager, exact)]
            problem = half_difference(*dense, step=coarsest_step([dtype]))
            assert not problem, f"{_name(op)} {dtype} sample {number}: {problem}"


def _widened(value: object) -> object:
    """The same in float32: its tensors, and the dtypes that it names."""
    flat = flatten(value)
    wide = flat.structure.rebuild([_wide_copy(leaf.detach()) for leaf in flat.leaves])
    if isinstance(wide, dict):
        return {key: torch.float32 if item in HALVES else item for key, item in wide.items()}
    return wide


def _wide_copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype not in HALVES or tensor.layout is not torch.strided:
        return tensor.float() if tensor.dtype in HALVES else _own_copy(tensor)
    memory = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.itemsize,), (1,), 0)
    return memory.float().as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


@pytest.mark.parametrize(("op", "engine"), SLICE)
def test_equals_eager_on_torchs_own_samples(op: object, engine: str) -> None:
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
            if is_random(sample):
                continue
            what = f"{_name(op)} {dtype} sample {number}"
            _check(op, engine, (sample.input, *sample.args), sample.kwargs, what)


def _run(
    op: object, engine: str, args: tuple[object, ...], kwargs: dict[str, object]
) -> tuple[list[torch.Tensor], list[torch.Tensor]] | None:
    """What the compiled op gives, and eager torch; None if it is refused, with a reason."""
    expected = op(*_copy(args), **_copy(kwargs))
    try:
        compiled = torchport.compile(
            lambda *args, **kwargs: op(*args, **kwargs),
            _copy(args),
            _copy(kwargs),
            target=engine,
            # Without children: one for each sample would take hours, and who crashes is seen here as well.
            options={"check": False, "cache": False, "child_trial": False},
        )
    except CaptureError:
        return None
    actual = compiled(*_copy(args), **_copy(kwargs))
    return flatten(actual).leaves, flatten(expected).leaves


def _check(op: object, engine: str, args: tuple[object, ...], kwargs: dict[str, object], what: str) -> None:
    found = _run(op, engine, args, kwargs)
    if found is None:
        return
    assert len(found[0]) == len(found[1]), what
    for mine, eager in zip(*found, strict=True):
        torch.testing.assert_close(
            mine,
            eager,
            rtol=1e-3,
            atol=1e-3,
            equal_nan=True,
            check_stride=False,
            msg=lambda text: f"{what}: {text}",
        )

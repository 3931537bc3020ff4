"""Never wrong: on torch's own samples of every op, the compiled result equals eager torch's.

The trial of islands is turned off, to test the target's verdicts themselves.
The whole sweep is `make conformance`; every 192nd op runs in `make test`.

onnxruntime and inductor take seconds to build anything at all, so all samples of eight ops form one graph for
them. If that graph is refused, is not built or falls back to eager torch, its halves are tried, down to one
sample, so that no sample's failure hides another. `engine_sweep.py` runs the same in pieces, on GPUs too.
"""

from __future__ import annotations

import pytest
import torch

from conformance.op_samples import DTYPES, OPS, check_together, name_of, problems_of, run_compiled, samples_of
from torchport.verification import HALVES

SLICE = [
    pytest.param(op, id=name_of(op), marks=[] if index % 192 == 5 else [pytest.mark.conformance])
    for index, op in enumerate(OPS)
]
TOGETHER = 8  # ops in one graph
GROUPS = [
    pytest.param(OPS[first : first + TOGETHER], id=f"{name_of(OPS[first])}-and-{TOGETHER - 1}-more")
    for first in range(0, len(OPS), TOGETHER)
]
IN_MAKE_TEST = GROUPS[3]


@pytest.mark.parametrize("dtype", HALVES, ids=["bfloat16", "float16"])
@pytest.mark.parametrize("op", SLICE)
def test_is_as_close_to_float32_as_eager_in_half_precision(op: object, dtype: torch.dtype) -> None:
    _check_each(op, (dtype,))


@pytest.mark.parametrize("op", SLICE)
def test_equals_eager_on_torchs_own_samples(op: object) -> None:
    _check_each(op, DTYPES)


def _check_each(op: object, dtypes: tuple[torch.dtype, ...]) -> None:
    for sample in samples_of(op, dtypes):
        actual = run_compiled([sample], "openvino")
        problems = [] if actual is None else problems_of([sample], actual)
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
    problems = check_together([sample for op in ops for sample in samples_of(op)], engine)
    assert not problems, "\n".join(problems)

"""Never wrong on ttnn: on torch's own samples of every op, the program in float32 equals eager torch.

The trial of islands is turned off, to test the lowerings themselves. The whole sweep is `make conformance`;
every eightieth op runs in `make test`.
"""

from __future__ import annotations

import itertools

import pytest
import torch

import torchport
from conformance.op_samples import DTYPES, OPS, SAMPLES, is_random, name_of, own_copy
from torchport.errors import CaptureError
from torchport.structure import flatten

OPTIONS = {"check": False, "cache": False, "dtype": "float32"}
SLICE = [
    pytest.param(op, id=name_of(op), marks=[] if index % 80 == 7 else [pytest.mark.conformance])
    for index, op in enumerate(OPS)
]


@pytest.mark.parametrize("op", SLICE)
def test_equals_eager_on_torchs_own_samples(op: object) -> None:
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        for number, sample in enumerate(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)):
            if is_random(sample):
                continue
            _check(op, (sample.input, *sample.args), sample.kwargs, f"{name_of(op)} {dtype} sample {number}")


def _check(op: object, args: tuple[object, ...], kwargs: dict[str, object], what: str) -> None:
    expected = flatten(op(*own_copy(args), **own_copy(kwargs))).leaves
    try:
        compiled = torchport.compile(
            lambda *args, **kwargs: op(*args, **kwargs),
            own_copy(args),
            own_copy(kwargs),
            target="ttnn",
            options=OPTIONS,
        )
    except CaptureError:
        return  # refused, with a reason
    failed = [row.detail for row in compiled.coverage.stayed if row.reason == "build_failed"]
    assert not failed, f"{what}: a verdict and its lowering part: {failed}"
    actual = flatten(compiled(*own_copy(args), **own_copy(kwargs))).leaves
    assert len(actual) == len(expected), what
    for mine, eager in zip(actual, expected, strict=True):
        torch.testing.assert_close(
            mine,
            eager,
            rtol=1e-3,
            atol=1e-3,
            equal_nan=True,
            check_stride=False,
            msg=lambda text: f"{what}: {text}",
        )

"""Verifying generated code: what counts as its guard, and what as a fault."""

import pytest
import torch

from torchport.capture import Argument
from torchport.codegen.verify import Original, verify_code
from torchport.errors import CodegenError

TEXT = """
import fractions
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] != 3:
            {}
        return x + 1

def load_model():
    return Model()
"""


class AddsOne(torch.nn.Module):
    def forward(self, x):
        return x + 1


def verify(statement):
    original = Original(AddsOne(), (Argument("x", torch.ones(3, 4), keyword=False),), None)
    verify_code(TEXT.format(statement), {"unused": torch.ones(1)}, original, "weights.safetensors")


@pytest.mark.parametrize(
    "guard", ['raise ValueError("this code is specialized to 3 rows")', 'raise ValueError(\n"only 3 rows")']
)
def test_a_guard_is_a_raise_statement_of_the_code_whatever_its_words(guard):
    verify(guard)


@pytest.mark.parametrize(
    "call", ['int("this code is specialized to")', 'fractions.Fraction("this code is specialized to")']
)
def test_an_error_of_an_op_is_a_fault_whatever_its_words(call):
    with pytest.raises(CodegenError, match=r"fails for inputs of .*this code is specialized to"):
        verify(call)

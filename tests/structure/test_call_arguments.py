"""The inputs of a call, as users pass them: what can be one is, and the rest is explained."""

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import StructureError, TargetError
from torchport.structure import call_arguments

MODEL, X = nn.Linear(4, 2).eval(), torch.ones(3, 4)


def test_a_tensor_is_the_only_input():
    args, kwargs = call_arguments(X)
    assert args[0] is X
    assert len(args) == 1
    assert kwargs == {}


def test_a_compiled_model_takes_the_tensor():
    compiled = torchport.compile(MODEL, X, target="host")
    assert [str(spec) for spec in compiled.record.inputs.values()] == ["float32[3, 4]"]


@pytest.mark.parametrize("args", [None, 3, "x", {"input": X}])
@pytest.mark.parametrize(
    "call",
    [
        lambda args: torchport.compile(MODEL, args, target="host"),
        lambda args: torchport.explain(MODEL, args, target="host"),
        lambda args: torchport.analyze(MODEL, args),
        lambda args: torchport.trace_graph(MODEL, args),
    ],
)
def test_other_inputs_are_explained(call, args):
    with pytest.raises(
        StructureError, match=f"of the class {type(args).__name__}, not a tuple: give a tuple"
    ):
        call(args)


@pytest.mark.parametrize("kwargs", [3, {3: X}])
def test_other_inputs_by_name_are_explained(kwargs):
    with pytest.raises(StructureError, match="no dict with strings as keys: "):
        torchport.compile(MODEL, (), kwargs=kwargs, target="host")


@pytest.mark.parametrize("target", [None, 3, [], b"host"])
def test_a_target_that_is_no_name(target):
    with pytest.raises(TargetError, match="no target named"):
        torchport.compile(MODEL, (X,), target=target)


@pytest.mark.parametrize(
    ("options", "message"), [(3, "are a int, not a dict"), ("x", "are a str"), ({1: 2}, "no option 1")]
)
def test_options_that_are_no_dict(options, message):
    with pytest.raises(TargetError, match=message):
        torchport.compile(MODEL, (X,), target="host", options=options)

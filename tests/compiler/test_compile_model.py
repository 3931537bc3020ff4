"""`torchport.compile` itself: what it accepts and what it refuses."""

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import TargetError, TorchportError
from torchport.targets import find

X = (torch.ones(2, 3),)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "opnvino"}, "no target named 'opnvino': did you mean 'openvino'?"),
        ({"options": {"devise": "CPU"}}, "the target has no option 'devise': did you mean 'device'"),
        ({"options": {"precision": "float8"}}, "unknown precision 'float8'"),
        ({"options": {"device": "GPU"}}, "OpenVINO finds no device 'GPU' here"),
        (
            {"options": {"keep_modules": ["layer"]}},
            "the option keep_modules names 'layer', and the model",
        ),
    ],
)
def test_refusals(arguments, message):
    if "GPU" in str(arguments) and any("GPU" in name for name in find("openvino").availability().devices):
        pytest.skip("this machine has a GPU that OpenVINO sees")
    with pytest.raises(TargetError) as caught:
        torchport.compile(nn.ReLU(), X, **arguments)
    assert message in str(caught.value)
    assert isinstance(caught.value, TorchportError)


def test_the_default_target_is_openvino():
    assert torchport.compile(nn.ReLU(), X).record.target == "openvino"


@pytest.mark.parametrize(
    "callable",
    [torch.relu, lambda x: x.relu(), nn.ReLU(), nn.ReLU().forward, torch.nn.functional.relu],
    ids=["builtin", "lambda", "module", "method", "function"],
)
def test_any_callable_is_taken(callable, target):
    compiled = torchport.compile(callable, X, target=target)
    assert compiled(torch.tensor([[-1.0, 2.0, -3.0]] * 2)).tolist() == [[0.0, 2.0, 0.0]] * 2


def test_names_are_the_model_s_or_the_user_s():
    assert torchport.compile(nn.ReLU(), X, target="host").record.model == "ReLU"
    assert torchport.compile(nn.ReLU(), X, target="host", name="mine").record.model == "mine"


def test_a_compiled_model_can_be_part_of_another_model(target):
    inner = nn.Linear(3, 3).eval()
    outer = nn.Sequential(torchport.compile(inner, X, target=target), nn.ReLU())
    with torch.no_grad():
        torch.testing.assert_close(outer(*X), torch.relu(inner(*X)))


@pytest.mark.parametrize("public", [torchport.compile, torchport.explain])
def test_a_module_to_keep_must_be_there(public):
    model = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU()))
    with pytest.raises(TargetError, match=r"no such module: did you mean '1\.0'"):
        public(model, X, target="host", options={"keep_modules": ["1.00"]})
    coverage = public(model, X, target="host", options={"keep_modules": ["1.0"]})
    assert getattr(coverage, "coverage", coverage).ops_remain == 1


def branches(x):
    return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.tanh() - 1, (x,)) + 1


def loop(x):
    start = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2 + i), (start, x))[1] + 1


@pytest.mark.parametrize("model", [branches, loop])
def test_control_flow_as_an_op(model, target):
    compiled = torchport.compile(model, (torch.ones(3),), target=target)
    for x in (torch.ones(3), torch.tensor([1.0, -2.0, -3.0])):
        torch.testing.assert_close(compiled(x), model(x))


def test_a_branch_that_is_an_op_in_a_program_for_all_sizes(target):
    x = torch.rand(3, 4)
    sizes = {"x": {0: torch.export.Dim("rows", min=1, max=9)}}
    compiled = torchport.compile(branches, (x,), target=target, dynamic_shapes=sizes)
    for rows in (2, 5, 9):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), branches(x))
    assert len(compiled.programs) == 1

"""The options of `torch_ttnn` are translated to torchport's ttnn target, or refused."""

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

import torch_ttnn
import torchport
from torch_ttnn import TorchTtnnOption


class Device:
    """A stand-in for ttnn's device object."""

    def id(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        (None, {"simulate": True}),
        ("mock", {"simulate": True}),
        (1, {"device_id": 1}),
        (Device(), {"device_id": 3}),
    ],
)
def test_the_device_is_the_targets(device, expected):
    assert TorchTtnnOption(device=device).target_options() == expected


@pytest.mark.parametrize("device", ["cuda", 1.5, True])
def test_what_is_no_device_is_refused(device):
    with pytest.raises(torchport.TorchportError, match="is not a device"):
        TorchTtnnOption(device=device)


@pytest.mark.parametrize(
    "setting",
    [
        {"gen_graphviz": True},
        {"metrics_path": "bert"},
        {"run_mem_analysis": True},
        {"run_eviction_opt": True},
        {"tracer_option": object()},
        {"bypass_compile": True},
        {"data_parallel": True},
    ],
    ids=lambda setting: next(iter(setting)),
)
def test_a_setting_that_is_not_supported_is_refused_with_what_does_the_same(setting):
    with pytest.raises(torchport.TorchportError, match=next(iter(setting))) as caught:
        TorchTtnnOption(device=None, **setting)
    assert caught.value.remedy


@pytest.mark.parametrize("options", [TorchTtnnOption(device=None), {"simulate": True, "dtype": "bfloat16"}])
def test_a_model_runs_with_options(options):
    model, x = torch.nn.Linear(32, 16).eval(), torch.rand(2, 32)
    with torch.no_grad():
        result, expected = torch.compile(model, backend=torch_ttnn.backend, options=options)(x), model(x)
    assert torchport.compare(result, expected).pcc > 0.999
    assert not torch.equal(result, expected)  # bfloat16


def test_an_unknown_option_is_refused():
    compiled = torch.compile(torch.nn.ReLU(), backend=torch_ttnn.backend, options={"dtpye": "bfloat16"})
    with pytest.raises(BackendCompilerFailed, match="no option 'dtpye': did you mean 'dtype'"):
        compiled(torch.rand(2))

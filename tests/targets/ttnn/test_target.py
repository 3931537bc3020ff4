"""The target as a whole: options, checks of inputs, and the labelling of simulated runs."""

import pytest
import torch
from torch import nn

import torchport
from targets.ttnn.programs import compiled_for, program_of, random
from torchport import targets
from torchport.errors import TargetError
from torchport.targets.ttnn.simulator import run
from torchport.targets.ttnn.simulator.tensors import hold
from torchport.targets.ttnn.target import TtnnTarget


def test_it_works_anywhere_and_says_that_it_simulates():
    answer = TtnnTarget().availability()
    assert answer.ok
    assert "simulated" in answer.detail


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"dtype": "bfloat61"}, "'bfloat16'"),
        ({"math_fidelity": "HiFi5"}, "HiFi4"),
        ({"dtyp": "x"}, "'dtype'"),
    ],
)
def test_a_choice_that_there_is_not_names_the_nearest(given, advice):
    with pytest.raises(TargetError) as caught:
        targets.find("ttnn").make_options(given)
    assert advice in str(caught.value)


def test_bfloat8_b_is_for_the_weights_of_products():
    layer = nn.Linear(8, 8)
    program = program_of(compiled_for(layer, random(2, 8), dtype="bfloat8_b", math_fidelity="LoFi"))
    dtypes = {weight.tensor.shape: weight.tensor.dtype for weight in program.weights}
    assert dtypes == {(8, 8): "bfloat8_b", (1, 8): "bfloat16"}
    assert program.calls[0].tensors[0].dtype == "bfloat16"
    assert program.math_fidelity == "LoFi"


@pytest.mark.parametrize(
    ("layer", "dtype"),
    [
        (nn.Conv2d(6, 8, 1), "bfloat8_b"),
        (nn.Conv2d(6, 8, 3), "bfloat16"),
        (nn.Conv2d(6, 8, 1, stride=2), "bfloat16"),
        (nn.ConvTranspose2d(6, 8, 1), "bfloat16"),
    ],
)
def test_bfloat8_b_is_for_convolutions_that_the_library_can_prepare(layer, dtype):
    program = program_of(compiled_for(layer, random(2, 6, 12, 10), dtype="bfloat8_b"))
    assert [call.tensors[0].dtype for call in program.load] == [dtype, dtype]


def test_an_index_out_of_bounds_raises_as_in_torch():
    table = nn.Embedding(10, 4)
    compiled = compiled_for(table, torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        compiled(torch.tensor([1, 12]))


def test_nan_is_left_to_torch():
    x = random(2, 8)
    compiled = compiled_for(torch.relu, x)
    x[0, 0] = torch.nan
    assert compiled(x)[0, 0].isnan()


def test_a_bfloat16_model_stays_one():
    model = nn.Linear(8, 8).to(torch.bfloat16)
    x = random(2, 8).to(torch.bfloat16)
    result = compiled_for(model, x, dtype="float32")(x)
    assert result.dtype is torch.bfloat16
    torch.testing.assert_close(result, model(x).detach(), rtol=2e-2, atol=2e-2)


def test_large_integers_keep_their_bits_when_they_become_floats():
    """bfloat16 cannot hold positions up to 1000; as angles they would be off by radians."""
    positions = torch.arange(1000).reshape(1, -1)
    compiled = compiled_for(lambda p: torch.sin(p.float() * 0.5), positions)
    assert compiled.coverage.ops_remain == 0
    torch.testing.assert_close(compiled(positions), torch.sin(positions.float() * 0.5), rtol=1e-3, atol=1e-3)


def test_the_trial_takes_what_rounding_adds_up_to():
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(24)]).eval()
    x = random(4, 64)
    compiled = compiled_for(model, x, check=True)
    assert compiled.coverage.ops_remain == 0
    assert torchport.compare(compiled(x), model(x)).pcc > 0.99


def test_a_simulated_run_has_an_estimate():
    compiled = compiled_for(nn.Linear(8, 8), random(2, 8))
    assert 4e-5 < compiled.simulated_seconds < 1e-3  # two transfers of 20 µs, two launches
    on_host = torchport.compile(nn.Linear(8, 8), (random(2, 8),), target="host")
    assert on_host.simulated_seconds is None


def test_large_weights_stay_as_they_are_stored(monkeypatch):
    class Lookup(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(50, 64)
            self.head = nn.Linear(64, 40)

        def forward(self, ids):
            return self.head(self.table(ids)), self.table.weight

    torch.manual_seed(0)
    model, ids = Lookup().eval(), torch.arange(8).reshape(1, 8)
    held = []
    monkeypatch.setattr(run, "hold", lambda *given: held.append(given[0].shape) or hold(*given))
    results = []
    for much in (run._MUCH, 0):
        monkeypatch.setattr(run, "_MUCH", much)
        monkeypatch.setattr(run, "_LARGE", much)
        model.head.bias.data += 1  # gives a different program, which is not loaded yet
        compiled = torchport.compile(model, (ids,), target="ttnn", options={"cache": False})
        held.clear()
        results.append(compiled(ids))
        assert ((50, 64) in held) is (much == 0)  # converted during the call, or before it
    (before, table), (after, same) = results
    assert torch.equal(table, same)
    torch.testing.assert_close(after, before + 1, atol=0.02, rtol=0.02)

"""Models that cannot be captured are refused with the cause, the source line, and what to do."""

import pytest
import torch
from torch import nn

import torchport
from capture.models import Branches, CountsRows, Raises, line_of
from torchport.capture import export
from torchport.errors import CaptureError


def refusal(model, *args, **kwargs):
    with pytest.raises(CaptureError) as caught:
        export(model, args, kwargs)
    return caught.value


def test_a_model_that_raises_is_named_with_its_own_error_and_line():
    error = refusal(Raises(), torch.ones(1))
    assert error.what == "the model raises KeyError: 'no such head'"
    assert error.where == f"Raises, {line_of('the line that raises')} in forward"
    assert "fix it or the inputs" in error.remedy


def test_inputs_that_do_not_fit_are_told_in_torch_s_own_words():
    error = refusal(nn.Linear(3, 2), torch.ones(1, 4))
    assert (
        "the model raises RuntimeError: mat1 and mat2 shapes cannot be multiplied (1x4 and 3x2)" in error.what
    )


def test_too_many_inputs():
    assert "the model raises TypeError" in refusal(nn.ReLU(), torch.ones(1), torch.ones(1)).what


@pytest.mark.parametrize(
    ("model", "marker"),
    [(Branches(), "the line that branches"), (CountsRows(), "the line that asks for values")],
)
def test_a_path_that_depends_on_data_is_refused_at_its_line(model, marker):
    error = refusal(model, torch.ones(3))
    assert "depends on the values of a tensor" in error.what
    assert f"{line_of(marker)} in forward" in error.where
    assert 'torch.compile(model, backend="torchport")' in error.remedy


def test_the_cause_is_kept():
    assert refusal(Branches(), torch.ones(3)).__cause__ is not None


def test_a_trial_call_leaves_buffers_and_inputs_as_they_were():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            x.zero_()
            return [1] if x.sum() > 0 else [2]

    model, x = Model(), torch.ones(2)
    refusal(model, x)
    assert model.count.item() == 0
    assert x.tolist() == [1.0, 1.0]


class Finds(nn.Module):
    """Needs values: the number of results depends on them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("offset", torch.zeros(3))

    def forward(self, x):
        y = self.linear(x) + self.offset
        return y[: int(y.nonzero().sum())]


def test_on_the_meta_device_the_reason_is_the_missing_values_and_not_torchs_own_error():
    with torch.device("meta"):
        model, x = Finds(), torch.ones(2, 3)
    for target in ("host", "openvino", "ttnn"):
        with pytest.raises(CaptureError, match="depends on the values of a tensor"):
            torchport.explain(model, (x,), target=target)


class Wide(nn.Module):
    """Is called with inputs of the wrong shape."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x)


def test_on_the_meta_device_a_models_own_error_is_still_told():
    with torch.device("meta"):
        model, x = Wide(), torch.ones(2, 5)
    with pytest.raises(CaptureError, match="the model raises RuntimeError"):
        torchport.explain(model, (x,), target="host")


@pytest.mark.parametrize("capture_it", [torchport.compile, torchport.trace_graph])
def test_a_lazy_module_is_called_first(capture_it):
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(
        CaptureError, match=r"parameter 0\.weight of a lazy module has no shape yet"
    ) as caught:
        capture_it(model, (torch.ones(2, 4),))
    assert caught.value.remedy == "call the model once on its inputs first"


class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError


def test_an_error_whose_message_cannot_be_read():
    class Model(nn.Module):
        def forward(self, x):
            raise Unreadable

    assert refusal(Model(), torch.ones(1)).what.startswith(
        "the model raises Unreadable: its message cannot be read"
    )


class Seeds(nn.Module):
    def forward(self, x):
        torch.manual_seed(5)
        return x + torch.rand(3)


class SeedsAside(nn.Module):
    def forward(self, x):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(5)
            return x + torch.rand(3)


@pytest.mark.parametrize("model", [Seeds(), SeedsAside()])
def test_a_model_that_seeds_its_random_numbers_is_refused(model):
    torch.manual_seed(0)
    assert "seeds torch's random numbers and then draws some" in refusal(model, torch.ones(3)).what
    compiled = torch.compile(model, backend="torchport", options={"target": "host"})
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(3)), model(torch.ones(3)))


def test_a_model_that_seeds_what_it_never_draws_is_captured():
    class Model(nn.Module):
        def forward(self, x):
            torch.manual_seed(5)
            return x + 1

    torch.manual_seed(0)
    assert torchport.compile(Model(), (torch.ones(3),), target="host")(torch.ones(3)).tolist() == [2, 2, 2]
    assert torch.initial_seed() == 0

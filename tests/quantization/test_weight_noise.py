"""Moments from few data are partly noise: its share is estimated from sequences, and not fitted to."""

import pytest
import torch
from torch import nn

from torchport.quantization.input_moments import InputMoments, noise_share
from torchport.quantization.lockstep import graph_of
from torchport.quantization.model_runs import result_tensors
from torchport.quantization.weight_rounding import Moments, Rounded, round_with_data
from torchport.quantization.weight_sensitivity import output_errors


def test_noise_is_the_variance_of_the_mean_over_its_power() -> None:
    torch.manual_seed(0)
    one, other = torch.randn(12, 5, 8), torch.randn(12, 5, 3)
    other = other + one[..., :3]
    each = torch.einsum("sti,sto->sio", one, other) / 5
    expected = each.double().var(0).sum() / 12 / each.mean(0).double().square().sum()
    found = noise_share([one[:6], one[6:]], [other[:6], other[6:]], each.mean(0), 2)
    assert found == pytest.approx(float(expected), rel=1e-4)
    long = noise_share([one.repeat(1, 4, 1)], [other.repeat(1, 4, 1)], each.mean(0), 1)  # rows times rows
    assert long == pytest.approx(float(expected), rel=1e-4)


def test_rows_of_a_sequence_that_are_alike_count_once() -> None:
    torch.manual_seed(0)
    sequences = torch.randn(20, 1, 16)
    once, often = (
        InputMoments([each]).of(torch.zeros(4, 16), [torch.zeros(*each.shape[:2], 4)])
        for each in (sequences, sequences.expand(20, 30, 16).contiguous())
    )
    assert often.count == 600
    assert often.noise == pytest.approx(once.noise, rel=1e-4)
    assert once.noise > 0.5  # 20 rows have little information on 16 uncorrelated inputs


def floats_of(rounded: Rounded) -> torch.Tensor:
    return ((rounded.whole - rounded.grid.zero) * rounded.grid.scale).flatten(1)


def test_what_is_chance_is_not_fitted_to() -> None:
    """Few long sequences, in a model whose earlier layers have errors: results on unseen data improve."""
    torch.manual_seed(0)
    weight, unseen = torch.randn(32, 64), torch.randn(4096, 64)
    inputs = torch.randn(24, 1, 64) + 0.2 * torch.randn(24, 40, 64)
    wanted = (inputs + 0.3 * torch.randn(24, 1, 64)) @ weight.T
    known = InputMoments([inputs]).of(weight, [wanted])
    assert min(known.noise, known.products_noise) > 0.5
    certain = Moments(known.squares, known.products, known.count)
    errors = [
        float((unseen @ (floats_of(round_with_data(weight, each, 32, True)) - weight).T).square().mean())
        for each in (known, certain)
    ]
    assert errors[0] < 0.5 * errors[1]


def test_errors_that_positions_share_are_added_up_before_they_are_squared() -> None:
    class Mean(nn.Module):
        """Average over positions, which leaves only what they have in common."""

        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 64, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.first(x).mean(1)

    torch.manual_seed(0)
    model = Mean().eval()
    item = torch.randn(4, 1, 64) + torch.randn(4, 50, 64)
    graph = graph_of(model, [item], ["first"])
    assert graph is not None
    rounded = model.first.weight.detach() + 0.01 * torch.randn(64, 64)
    with torch.no_grad():
        expected = model(item)
        error = item.mean(1) @ (rounded - model.first.weight).T
    share = float(error.square().sum() / expected.square().sum())
    assert output_errors(graph, {"first": rounded})["first"] == pytest.approx(share, rel=0.3)


def test_a_cache_for_the_next_call_is_not_judged() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=2)).eval()
    ids = torch.randint(0, 50, (2, 6))
    with torch.no_grad():
        result = model(input_ids=ids)
    assert result.past_key_values is not None
    [judged] = result_tensors(result)
    assert judged is result.logits
    last = "model.layers.1.self_attn.k_proj"
    graph = graph_of(model, [{"input_ids": ids}], [last, "lm_head"])
    assert graph is not None
    head, keys = model.lm_head.weight.detach(), model.get_submodule(last).weight.detach()
    errors = output_errors(graph, {"lm_head": head * 1.01, last: keys * 1.01})
    # A head that is 1 % too large causes an error of a ten-thousandth of the logits' power.
    assert errors["lm_head"] == pytest.approx(1e-4, rel=0.2)
    assert errors[last] < 0.1 * errors["lm_head"]  # its keys are in the cache, 1 % too large as well

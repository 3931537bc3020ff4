"""Random numbers are torch's own: the same seed gives what eager torch gives."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])

    def forward(self, x):
        noise = torch.rand(x.shape[0], 1)
        for layer in self.layers:
            x = F.dropout(torch.relu(layer(x)), 0.3, self.training) + torch.randn_like(x) * 0.1
        return x * noise + torch.bernoulli(torch.full_like(x, 0.5))


def test_dropout_and_noise_equal_eager_torch_s_for_the_same_seed(bring_up):
    model, x = Net().train(), torch.randn(4, 16)
    compiled = bring_up(model, x)
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        ours, after = compiled(x), torch.rand(1)
        torch.manual_seed(seed)
        torch.testing.assert_close(ours, model(x), rtol=1e-4, atol=1e-4)
        assert torch.equal(after, torch.rand(1))  # and leaves the generator in the same state as eager torch


def test_each_call_draws_anew(bring_up):
    compiled = bring_up(nn.Dropout(0.5).train(), torch.ones(64))
    assert not torch.equal(compiled(torch.ones(64)), compiled(torch.ones(64)))


def test_compiling_draws_nothing(bring_up):
    model, x = Net().train(), torch.randn(4, 16)
    torch.manual_seed(3)
    ours = bring_up(model, x)(x)
    torch.manual_seed(3)
    torch.testing.assert_close(ours, model(x), rtol=1e-4, atol=1e-4)


def test_a_call_that_runs_eagerly_after_all_draws_the_same_numbers(bring_up):
    def model(x):
        return torch.relu(F.dropout(x, 0.5, True) + 1) * torch.rand(8)

    compiled = bring_up(model, torch.ones(8))
    x = torch.ones(8)
    x[3] = float("nan")
    torch.manual_seed(4)
    ours = compiled(x)
    torch.manual_seed(4)
    torch.testing.assert_close(ours, model(x), equal_nan=True)

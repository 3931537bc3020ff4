"""Where an island could lose a NaN: nowhere in what models usually do, and where it could, it is watched."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchport import capture
from torchport.compiler.normalise import normalise
from torchport.targets import find
from torchport.targets.openvino.watches import find_watches

X = torch.randn(2, 3, 8, 8)
INF = float("inf")


def watched(model, *args):
    graph = normalise(capture.export(model, args), find("openvino"))
    watches, finite = find_watches(graph.graph_module)
    return [(str(watch.node.target).split(".")[1], watch.dims) for watch in watches], finite


class Norm(nn.Module):
    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return torch.relu(x * scale) / x.abs().clamp(min=1e-6).sum(-1, keepdim=True)


NO_RISK = {
    "convolutions": nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)).eval(),
    "a norm by hand": Norm(),
    "normalize": lambda x: F.normalize(x, dim=-1).relu(),
    "layer norm": lambda x: F.gelu(F.layer_norm(x, (8,))),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x).relu(),
    "softmax": lambda x: torch.softmax(x @ x.transpose(-1, -2) / 8**0.5, -1).relu(),
    "elu": lambda x: F.conv2d(F.elu(x), torch.ones(4, 3, 1, 1)).relu(),
    "a finite mask": lambda x: torch.softmax((x @ x).masked_fill(x > 0, torch.finfo(x.dtype).min), -1),
    "rotary": lambda x: torch.softmax(x * torch.cos(x) + x * torch.sin(x), -1) @ x,
    "squeeze and excitation": lambda x: torch.relu(x * torch.sigmoid(x.mean((2, 3), keepdim=True))),
}


@pytest.mark.parametrize("case", NO_RISK)
def test_what_models_usually_do_needs_no_watch(case):
    assert watched(NO_RISK[case], X)[0] == []


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: torch.relu(torch.sqrt(x)), [("sqrt", None)]),
        (lambda x: torch.relu(x / x), [("div", None)]),
        (lambda x: torch.sqrt(x) * 2 + 1, []),  # shows in the result
        (lambda x: torch.relu(torch.sqrt(x.abs())), []),
        (lambda x: torch.relu(x**-1), [("pow", None)]),
        (lambda x: torch.relu(x**2 + 1), []),
        (lambda x: torch.softmax(x.masked_fill(x > 0, -INF), 1), [("masked_fill", (1,))]),
        (lambda x: x.masked_fill(x > 0, -INF).amax((2, 3)), [("masked_fill", (2, 3))]),
        (lambda x: x.relu().masked_fill(x > 0, INF).amax(2), []),
        (lambda x: x.masked_fill(x > 0, INF).amin(2), [("masked_fill", None)]),
        (lambda x: F.max_pool2d(x.masked_fill(x > 0, -INF), 2), [("masked_fill", None)]),
        (lambda x: torch.relu(torch.tensor([INF, 1.0]) * x[..., :2]), [("mul", None)]),
        (lambda x: torch.relu(x[:1].var(0)), [("var", None)]),
        (lambda x: torch.relu(x.var(0)), []),
    ],
    ids=[
        "sqrt",
        "0/0",
        "seen",
        "sqrt of abs",
        "1/0",
        "square",
        "masked softmax",
        "masked amax",
        "amax of inf",
        "masked amin",
        "masked pooling",
        "inf weight",
        "var of one",
        "var",
    ],
)
def test_a_value_that_could_be_nan_is_watched_where_it_could_get_lost(function, expected):
    assert watched(function, X)[0] == expected


def test_a_mask_may_be_infinite_and_an_image_may_not():
    def model(x, mask):
        return torch.softmax(torch.relu(x) + mask, -1)

    watches, finite = watched(model, X, torch.zeros(8, 8))
    assert watches == [("add", (-1,))]
    assert finite == [0]

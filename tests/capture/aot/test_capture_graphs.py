"""The graphs captured on fake tensors equal those that AOTAutograd passes to a compiler."""

import pytest
import torch
from torch import nn

from capture.aot.counting import counted
from torchport import zoo
from torchport.capture import capture_graphs, module_path, ops_of, source_lines
from torchport.errors import CaptureError
from torchport.zoo import Model


def captured(model, *, backward):
    graphs = capture_graphs(model.module, model.args, model.kwargs, backward=backward)
    return [
        (graph.direction, sorted(str(node.target) for node in ops_of(graph.graph_module))) for graph in graphs
    ]


MODELS = [
    "timm:test_resnet",
    "torchvision:resnet18",
    "torchvision:alexnet",
    "torchvision:vit_b_16",
    "hf:bert-base-uncased",
]


@pytest.mark.parametrize(
    ("name", "backward"),
    [
        pytest.param(name, backward, marks=[] if backward and index < 1 else [pytest.mark.conformance])
        for index, name in enumerate(MODELS)
        for backward in (False, True)
    ],
)
def test_a_model_without_values_has_the_ops_that_a_counting_compiler_is_handed(name, backward):
    without_values = zoo.load(name, weights=False, device="meta")
    with_values = zoo.load(name, weights=False)
    assert captured(without_values, backward=backward) == counted(with_values, backward=backward)


class Tied(nn.Module):
    """Uses one weight in two places: its gradient is a sum."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return {"logits": self.head(self.embedding(ids)), "again": None}


class Noisy(nn.Module):
    """Draws random numbers that are not used, and runs attention, which may draw some too."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, x):
        torch.rand(3)
        return self.attention(x, x, x, need_weights=False)[0]


class Counts(nn.Module):
    """Writes to a buffer in training mode; returns an input, and another tensor twice."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x, *, scale):
        y = self.norm(x) * scale
        return x, (y, y)


class Caches(nn.Module):
    """Computes something once and caches it."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))
        self.kept = {}

    def forward(self, x):
        if "square" not in self.kept:
            self.kept["square"] = self.weight @ self.weight
        return x @ self.kept["square"]


SMALL = {
    "tied": lambda: Model("tied", Tied().eval(), (torch.tensor([[1, 2]]),)),
    "noisy": lambda: Model("noisy", Noisy().eval(), (torch.rand(2, 3, 4),)),
    "counts": lambda: Model("counts", Counts().train(), (torch.rand(6, 4),), {"scale": torch.tensor(2.0)}),
    "half": lambda: Model("half", nn.Linear(4, 4).bfloat16(), (torch.rand(2, 4, dtype=torch.bfloat16),)),
}


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("name", SMALL)
def test_small_models_have_the_ops_that_a_counting_compiler_is_handed(name, backward):
    model = SMALL[name]()
    assert captured(model, backward=backward) == counted(model, backward=backward)


def test_what_a_model_caches_in_itself_is_traced_anew_and_gone_afterwards():
    model = Model("caches", Caches(), (torch.rand(2, 4),))
    assert captured(model, backward=False) == counted(Model("caches", Caches(), model.args), backward=False)
    assert [direction for direction, _ in captured(model, backward=True)] == ["fw", "bw"]
    assert model.module.kept == {}


def test_the_model_is_left_as_it_was():
    model = Counts().train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    parameters = dict(model.named_parameters())
    capture_graphs(model, (torch.rand(6, 4),), {"scale": torch.tensor(2.0)}, backward=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameters[name] is tensor for name, tensor in model.named_parameters())
    assert not model._forward_hooks
    assert all(parameter.grad is None for parameter in model.parameters())


def test_every_op_knows_its_module_and_line_backward_ops_too():
    model = nn.Sequential(nn.Linear(4, 4), Tanh())
    forward, backward = capture_graphs(model, (torch.rand(2, 4),), backward=True)
    lines = source_lines([], forward.graph_module.graph)
    paths = {str(node.target): module_path(node) for node in ops_of(forward.graph_module)}
    assert paths["aten.addmm.default"] == "0"
    assert paths["aten.tanh.default"] == "1"
    [tanh] = [node for node in ops_of(forward.graph_module) if "tanh" in node.name]
    assert lines[tanh.name].endswith("in forward")
    assert __file__ in lines[tanh.name]
    [gradient] = [node for node in ops_of(backward.graph_module) if "tanh_backward" in node.name]
    assert module_path(gradient) == "1"
    graphs = [forward.graph_module.graph]
    assert source_lines(graphs, backward.graph_module.graph)[gradient.name] == lines[tanh.name]


class Tanh(nn.Module):
    def forward(self, x):
        return torch.tanh(x)


class Branches(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def test_a_path_that_depends_on_values_is_refused_with_the_line():
    with pytest.raises(CaptureError, match="cannot be traced on fake tensors") as raised:
        capture_graphs(Branches(), (torch.ones(2),), name="branches")
    assert __file__ in raised.value.where
    assert "branches" in raised.value.where


def test_a_model_without_gradients_has_no_backward_graph_and_says_so():
    with pytest.raises(CaptureError, match="no output has a gradient"):
        capture_graphs(nn.ReLU(), (torch.ones(2),), backward=True)

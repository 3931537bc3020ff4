"""Unique modules: what makes two identical, modules that are shared, called twice or never, and the tree."""

import pytest
import torch
from torch import nn

import torchport
from torchport.records import parent_of


def entries(model, *args, **kwargs):
    return torchport.analyze(model, args, kwargs).modules.modules


def test_a_module_that_is_called_with_other_shapes_is_several_entries():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) + self.layer(x[:1]) + self.layer(x)

    _, whole, first = entries(Twice(), torch.ones(3, 4))
    assert (whole.input_shapes, whole.occurrences, whole.calls) == (("3x4",), ("layer",), 2)
    assert (first.input_shapes, first.occurrences, first.calls) == (("1x4",), ("layer",), 1)


def test_a_shared_module_is_one_with_several_occurrences():
    layer, relu = nn.Linear(4, 4), nn.ReLU()
    analysis = torchport.analyze(nn.Sequential(layer, relu, layer, relu), (torch.ones(2, 4),))
    assert [(entry.class_name, entry.occurrences) for entry in analysis.modules.modules] == [
        ("Sequential", ("(root)",)),
        ("Linear", ("0", "2")),
        ("ReLU", ("1", "3")),
    ]
    metadata = analysis.modules.metadata
    assert (metadata.total_modules, metadata.module_paths, metadata.unique_modules) == (3, 5, 3)
    assert analysis.cost.parameters == 20
    assert [op.module_path for op in analysis.cost.ops] == ["0", "1", "2", "3"]


def test_a_module_that_is_held_twice_and_called_by_one_path():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.used = nn.Linear(4, 4)
            self.alias = self.used

        def forward(self, x):
            return self.used(x)

    _, layer = entries(Tied(), torch.ones(1, 4))
    assert layer.occurrences == ("used", "alias")


def test_containers_and_modules_that_are_never_called_have_no_shapes():
    class Partly(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
            self.spare = nn.ModuleDict({"extra": nn.Linear(4, 4)})

        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    found = {entry.module_path: entry for entry in entries(Partly(), torch.ones(1, 4))}
    assert list(found) == ["(root)", "blocks", "blocks.0", "spare", "spare.extra"]
    assert found["blocks"].class_name == "ModuleList"
    assert found["blocks"].input_shapes == found["blocks"].output_shapes == ()
    assert found["blocks.0"].occurrences == ("blocks.0", "blocks.1")
    assert (found["spare.extra"].parent, found["spare.extra"].calls) == ("spare", 0)


def test_parameter_values_tell_modules_apart():
    model = nn.Sequential(nn.Dropout(0.1), nn.Dropout(0.2), nn.Dropout(0.1))
    assert [entry.occurrences for entry in entries(model, torch.ones(2))] == [("(root)",), ("0", "2"), ("1",)]


def test_dtypes_tell_modules_apart():
    class Casts(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.ReLU()

        def forward(self, x):
            return self.relu(x), self.relu(x.double())

    _, single, double = entries(Casts(), torch.ones(2))
    assert (single.input_dtypes, double.input_dtypes) == (("float32",), ("float64",))


def test_inputs_by_keyword_in_dicts_and_nested():
    class Nested(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, *, extra, flag=True):
            y = self.layer(x) + extra["pair"][0]
            return {"sum": y, "parts": (x, [extra["pair"][1]])}

    root, _ = entries(Nested(), torch.ones(2, 4), extra={"pair": (torch.ones(4), torch.ones(1))}, flag=False)
    assert root.input_shapes == ("2x4", "4", "1")
    assert root.input_names == ("x", "extra.pair[0]", "extra.pair[1]")
    assert root.output_shapes == ("2x4", "2x4", "1")


def test_a_number_is_a_scalar():
    root = entries(nn.Identity(), torch.tensor(2.0))[0]
    assert root.input_shapes == ("scalar",)


def test_hooks_run_and_their_ops_are_the_modules():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_pre_hook(lambda _, args: (args[0] * 2,))
    model[1].register_forward_hook(lambda _, args, result: result.sum())
    analysis = torchport.analyze(model, (torch.ones(2, 4),))
    names = [(op.module_path, op.name) for op in analysis.cost.ops]
    assert names == [("0", "mul"), ("0", "linear"), ("1", "relu"), ("1", "sum")]
    assert analysis.modules.modules[-1].output_shapes == ("scalar",)


def test_parametrized_modules():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    found = entries(model, torch.ones(2, 4))
    assert [entry.class_name for entry in found] == [
        "ParametrizedLinear",
        "ModuleDict",
        "ParametrizationList",
        "_WeightNorm",
    ]
    assert found[0].parameters == {"in_features": 4, "out_features": 4, "bias": True}
    assert found[3].parent == "parametrizations.weight"


def test_layers_that_differ_only_in_their_index_refer_to_the_first():
    class Layer(nn.Module):
        def __init__(self, width, index):
            super().__init__()
            self.index = index
            self.layer = nn.Linear(width, width)

        def forward(self, x):
            return self.layer(x)

    found = entries(nn.Sequential(*[Layer(4, index) for index in range(3)]), torch.ones(1, 4))
    layers = [entry for entry in found if entry.class_name == "Layer"]
    assert [entry.parameters for entry in layers] == [{"index": 0}, {"index": 1}, {"index": 2}]
    assert [entry.like for entry in layers] == [None, layers[0].id, layers[0].id]


@pytest.mark.parametrize(
    ("path", "parent"), [("(root)", None), ("block1", "(root)"), ("block1.layer2", "block1")]
)
def test_parents(path, parent):
    assert parent_of(path) == parent

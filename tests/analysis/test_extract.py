"""From a loader to files: two small models, with every id, path and count worked out by hand."""

import json
from datetime import datetime

import pytest
import torch
from torch import nn

import torchport
from torchport.errors import AnalysisError, CaptureError, RecordError, ZooError


def load_model():
    """Return the model to analyze."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
    )


def get_inputs():
    return torch.randn(1, 3, 224, 224)


def load_linear():
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 10))


def get_linear_inputs():
    return torch.randn(1, 10)


@pytest.fixture
def convolutions(tmp_path):
    """The files of the model with two convolutions: modules and ops."""
    modules, ops = tmp_path / "unique_modules.json", tmp_path / "pytorch_ops.json"
    torchport.extract_unique_modules(load_fn=load_model, get_sample_input=get_inputs, output_path=modules)
    torchport.extract_pytorch_ops(
        modules_json_path=modules, load_fn=load_model, get_sample_input=get_inputs, output_path=ops
    )
    return json.loads(modules.read_text()), json.loads(ops.read_text())


def test_the_metadata_of_the_modules(convolutions):
    metadata = convolutions[0]["metadata"]
    assert metadata["load_fn_name"] == "load_model"
    assert metadata["load_fn_location"].endswith("test_extract.py:load_model")
    assert metadata["model_class"] == "Sequential"
    assert metadata["total_modules"] == 7
    assert metadata["unique_modules"] == 5
    assert len(metadata["timestamp"]) == len("2026-02-02T10:30:00")
    datetime.fromisoformat(metadata["timestamp"])


def test_each_unique_module_has_its_id_path_parent_and_occurrences(convolutions):
    rows = [
        (entry["id"], entry["class_name"], entry["module_path"], entry["parent"], entry["occurrences"])
        for entry in convolutions[0]["modules"]
    ]
    assert rows == [
        ("mod_000", "Sequential", "(root)", None, ["(root)"]),
        ("mod_001", "Conv2d", "0", "(root)", ["0"]),
        ("mod_002", "BatchNorm2d", "1", "(root)", ["1", "4"]),
        ("mod_003", "ReLU", "2", "(root)", ["2", "5"]),
        ("mod_004", "Conv2d", "3", "(root)", ["3"]),
    ]


def test_the_root_and_the_first_convolution_in_full(convolutions):
    root, convolution = convolutions[0]["modules"][:2]
    assert (root["input_shapes"], root["output_shapes"]) == (["1x3x224x224"], ["1x64x224x224"])
    assert (root["input_dtypes"], root["output_dtypes"]) == (["float32"], ["float32"])
    assert root["parameters"] == {}
    assert (convolution["input_shapes"], convolution["output_shapes"]) == (["1x3x224x224"], ["1x64x224x224"])
    assert convolution["parameters"] == {
        "in_channels": 3,
        "out_channels": 64,
        "kernel_size": [3, 3],
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
        "groups": 1,
        "bias": True,
        "padding_mode": "zeros",
    }


def test_the_ops_of_the_convolutions(convolutions, tmp_path):
    ops = convolutions[1]
    metadata = ops["metadata"]
    assert metadata["source_modules_json"] == str(tmp_path / "unique_modules.json")
    assert (metadata["total_ops"], metadata["unique_ops"]) == (6, 4)
    rows = [
        (op["id"], op["op_name"], op["source_module_id"], op["source_module_class"], len(op["occurrences"]))
        for op in ops["ops"]
    ]
    assert rows == [
        ("op_000", "torch.conv2d", "mod_001", "Conv2d", 1),
        ("op_001", "torch.batch_norm", "mod_002", "BatchNorm2d", 2),
        ("op_002", "torch.relu", "mod_003", "ReLU", 2),
        ("op_003", "torch.conv2d", "mod_004", "Conv2d", 1),
    ]


def test_one_op_in_full(convolutions):
    op = convolutions[1]["ops"][0]
    assert op["attributes"] == {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    assert op["tensor_types"] == {
        "input": {"shape": "1x3x224x224", "dtype": "float32"},
        "weight": {"shape": "64x3x3x3", "dtype": "float32"},
        "bias": {"shape": "64", "dtype": "float32"},
        "output": {"shape": "1x64x224x224", "dtype": "float32"},
    }
    [occurrence] = op["occurrences"]
    assert (occurrence["source_module_id"], occurrence["node_name"]) == ("mod_001", "conv2d")


def test_the_linear_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    modules = torchport.extract_unique_modules(
        load_fn=load_linear, get_sample_input=get_linear_inputs, output_path="unique_modules.json"
    )
    ops = torchport.extract_pytorch_ops(
        modules_json_path="unique_modules.json",
        load_fn=load_linear,
        get_sample_input=get_linear_inputs,
        output_path="pytorch_ops.json",
    )
    assert [(entry.id, entry.class_name, entry.occurrences) for entry in modules] == [
        ("mod_000", "Sequential", ("(root)",)),
        ("mod_001", "Linear", ("0",)),
        ("mod_002", "ReLU", ("1",)),
        ("mod_003", "Linear", ("2",)),
    ]
    assert modules[1].parameters == {"in_features": 10, "out_features": 20, "bias": True}
    assert [(op.op_name, op.source_module_id) for op in ops] == [
        ("torch.nn.functional.linear", "mod_001"),
        ("torch.relu", "mod_002"),
        ("torch.nn.functional.linear", "mod_003"),
    ]
    written = json.loads((tmp_path / "pytorch_ops.json").read_text())
    assert written["metadata"]["source_modules_json"] == "unique_modules.json"


def test_parents_rebuild_the_whole_tree(tmp_path):
    def load():
        return nn.Sequential(nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.ReLU())), nn.Linear(3, 4))

    modules = torchport.extract_unique_modules(load, lambda: torch.ones(1, 2), tmp_path / "modules.json")
    paths = {path for entry in modules for path in entry.occurrences}
    assert paths == {"(root)", "0", "0.0", "0.1", "0.1.0", "1"}
    assert {entry.module_path: entry.parent for entry in modules} == {
        "(root)": None,
        "0": "(root)",
        "0.0": "0",
        "0.1": "0",
        "0.1.0": "0.1",
        "1": "(root)",
    }


def test_containers_with_the_same_shapes_are_one_entry(tmp_path):
    def load():
        return nn.Sequential(nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh(), nn.Tanh()))

    modules = torchport.extract_unique_modules(load, lambda: torch.ones(1, 2), tmp_path / "modules.json")
    assert [(entry.class_name, entry.occurrences) for entry in modules] == [
        ("Sequential", ("(root)", "0", "1")),
        ("ReLU", ("0.0",)),
        ("Tanh", ("1.0", "1.1")),
    ]


def test_a_loader_that_raises_is_named_with_its_file(tmp_path):
    def load():
        raise ValueError("no such weights")

    with pytest.raises(AnalysisError, match=r"test_extract\.py:load: it raised ValueError: no such weights"):
        torchport.extract_unique_modules(load, get_inputs, tmp_path / "modules.json")


def test_a_loader_must_return_a_module(tmp_path):
    for result, text in [(None, "None"), ({"state": 1}, "a dict")]:
        with pytest.raises(AnalysisError, match=f"it returned {text}, not a model"):
            torchport.extract_unique_modules(lambda: result, get_inputs, tmp_path / "modules.json")


def test_inputs_that_are_none(tmp_path):
    with pytest.raises(ZooError, match="the inputs are of type int"):
        torchport.extract_unique_modules(load_linear, lambda: 3, tmp_path / "modules.json")
    with pytest.raises(AnalysisError, match="it raised KeyError"):
        torchport.extract_unique_modules(load_linear, lambda: {}["x"], tmp_path / "modules.json")


def test_inputs_that_do_not_fit_leave_no_file(tmp_path):
    path = tmp_path / "modules.json"
    with pytest.raises(CaptureError, match=r"in 0 \(Linear\).* input is float32\[1, 3, 224, 224\]"):
        torchport.extract_unique_modules(load_linear, get_inputs, path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        torchport.extract_unique_modules(load_linear, get_linear_inputs, tmp_path / "file" / "modules.json")


def test_modules_of_another_model_are_refused(tmp_path):
    path = tmp_path / "modules.json"
    torchport.extract_unique_modules(load_linear, get_linear_inputs, path)
    with pytest.raises(AnalysisError, match=r"mod_000 is Sequential.*extract the unique modules of this"):
        torchport.extract_pytorch_ops(path, load_model, get_inputs, tmp_path / "ops.json")
    with pytest.raises(RecordError, match=r"missing\.json: cannot be read"):
        torchport.extract_pytorch_ops(
            tmp_path / "missing.json", load_linear, get_linear_inputs, tmp_path / "ops.json"
        )
    assert not (tmp_path / "ops.json").exists()

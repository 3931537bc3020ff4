"""`torchport analyze`."""

import csv
import json

import pytest

from torchport.capture.stream import workspace
from torchport.records import Analysis, Cost, ModuleTable, OpTable, read_record

FLOPS = 2 * (2 * 2 * 4 * 4)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_files_go_to_a_folder_named_after_the_models_class(command, models, tmp_path):
    ran = command("analyze", f"{models}::load")
    assert ran.code == 0, ran.err
    assert sorted(path.name for path in (tmp_path / "Net").iterdir()) == [
        "cost.json",
        "pytorch_ops.json",
        "unique_modules.json",
    ]
    modules = read_record(tmp_path / "Net" / "unique_modules.json", ModuleTable)
    assert modules.metadata.load_fn_location == f"{models}:load"
    assert modules.metadata.load_fn_name == "load"
    assert (modules.metadata.total_modules, modules.metadata.unique_modules) == (6, 4)
    ops = read_record(tmp_path / "Net" / "pytorch_ops.json", OpTable)
    assert (ops.metadata.total_ops, ops.metadata.unique_ops) == (4, 2)
    assert read_record(tmp_path / "Net" / "cost.json", Cost).flops == FLOPS


def test_the_terminal_shows_the_tree_and_the_totals(command, models):
    ran = command("analyze", f"{models}::load", width=140)
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["Net", "Net", "2x4", "40", "128", "100.0%", "64", "B"] in lines
    assert ["encoder", "Sequential", "2x4", "40", "128", "100.0%", "64", "B"] in lines
    assert ["0", "Linear", "2x4", "20", "64", "50.0%", "32", "B"] in lines
    assert "128 FLOPs in products" in ran.out
    assert "6 (4 unique)" in ran.out
    assert "torch.nn.functional.linear" in ran.out


def test_an_estimated_peak_memory_is_marked_as_an_estimate(command, models, monkeypatch):
    monkeypatch.setattr(workspace, "is_modelled_processor", lambda: False)
    assert "about 64 B besides weights" in command("analyze", f"{models}::load", width=140).out


def test_depth_limits_the_tree(command, models):
    ran = command("analyze", f"{models}::load", "--depth", "0")
    assert "encoder" not in ran.out.split("Modules")[0]


def test_inputs_directory_and_backward(command, models, tmp_path):
    ran = command(
        "analyze",
        f"{models}::load_without_inputs",
        "--inputs",
        f"{models}::inputs",
        "--dir",
        "out",
        "--backward",
        "--json",
    )
    assert ran.code == 0, ran.err
    analysis = Analysis.from_json(ran.json)
    assert analysis.cost.backward
    forward = 2 * (2 * 7 * 4 * 4)
    assert analysis.cost.flops - analysis.cost.backward_flops == forward
    assert analysis.cost.backward_flops == forward + forward // 2  # the input has no gradient
    assert read_record(tmp_path / "out" / "cost.json", Cost) == analysis.cost


def test_several_models_get_a_folder_each_and_one_table_of_ops(command, models, tmp_path):
    ran = command(
        "analyze", f"{models}::load", "hf:tiny-llama", "--dir", "out", "--configurations", "ops.csv", "--json"
    )
    assert ran.code == 0, ran.err
    assert len([path for path in (tmp_path / "out").iterdir() if path.is_dir()]) == 2
    assert [document["model"] for document in ran.json] == [f"{models}::load", "hf:tiny-llama"]
    with open(tmp_path / "ops.csv") as file:
        rows = list(csv.DictReader(file))
    assert {row["models"] for row in rows} == {f"{models}::load", "hf:tiny-llama"}


def test_files_for_other_tools(command, models, tmp_path):
    ran = command(
        "analyze", f"{models}::load", "--configurations", "ops.json", "--model-explorer", "graph.json"
    )
    assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "ops.json").read_text())["total_flops"] == FLOPS
    assert (tmp_path / "graph.flops.json").is_file()


def test_a_roofline(command, models):
    line = ("analyze", f"{models}::load", "--peak-flops", "1e9", "--bandwidth", "1e9", "--json")
    estimate = command(*line).json["roofline"]
    linear, relu = 4 * (8 + 16 + 4 + 8), 4 * (8 + 8)
    assert estimate["seconds"] == pytest.approx(2 * (linear + relu) / 1e9)
    assert "Roofline" in command(*line[:-1]).out
    assert command(*line[:4]).code == 2


def test_a_library_model_needs_no_weights(command, tmp_path):
    ran = command("analyze", "torchvision:resnet18", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["cost"]["parameters"] == 11_689_512
    assert (tmp_path / "ResNet" / "cost.json").is_file()


def test_errors_are_one_line_and_write_nothing(command, models, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    (tmp_path / "broken.py").write_text(
        "def load():\n    raise ValueError('no')\n\n\ndef none():\n    return 3\n"
    )
    for line, message in [
        (["missing.py::load"], "missing.py: there is no such file"),
        ([f"{models}::laod"], "did you mean 'load'"),
        ([str(models)], "the name has no function"),
        (["broken.py::load"], "load() raised ValueError: no"),
        (["broken.py::none"], "it returned a value of type int, not a model"),
        ([f"{models}::load_without_inputs"], "no inputs given"),
        ([f"{models}::load", "--inputs", "broken.py::none"], "the inputs are of type int"),
        ([f"{models}::load_broken"], "ValueError: three is odd"),
        ([f"{models}::load", "--dir", str(models)], "cannot be written"),
    ]:
        ran = command("analyze", *line)
        assert (ran.code, ran.out) == (2, ""), line
        assert message in ran.err
        assert ran.err.count("\n") == 1, ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*before, "broken.py"])

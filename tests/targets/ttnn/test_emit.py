"""Emitted scripts: readable, without torch, and accepted completely by the real library on a mock chip."""

import ast
import math
import subprocess
from types import SimpleNamespace

import numpy
import pytest
import torch
from torch import nn

import torchport
from targets.ttnn.mock_chip import environment
from targets.ttnn.programs import compiled_for, judged, random, store
from torchport.errors import CompileError, RecordError, TargetError
from torchport.targets.ttnn.builder import Builder


class Small(nn.Module):
    """A convolution, an embedding, attention and a comparison: a bit of everything."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.BatchNorm2d(32), nn.ReLU())
        self.words = nn.Embedding(20, 32)
        self.attention = nn.MultiheadAttention(32, 1, batch_first=True)
        self.head = nn.Linear(32, 4)

    def forward(self, image, ids):
        tokens = torch.cat([self.stem(image).flatten(2).transpose(1, 2), self.words(ids)], 1)
        mixed = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.head(mixed).softmax(-1), mixed[:, 0] > 0, ids + 1


def example():
    return random(1, 3, 16, 16), torch.tensor([[1, 2, 3]])


def test_the_real_library_takes_a_script_whole_and_infers_what_we_say(tmp_path):
    compiled = compiled_for(Small().eval(), *example())
    [line] = judged([store(compiled, tmp_path / "small")])
    assert line["accepted"], line
    assert line["outputs"] == [["float32", [1, 19, 4]], ["bool", [1, 32]], ["int64", [1, 3]]]


def test_run_as_a_script_it_exits_with_0(tmp_path):
    compiled_for(Small().eval(), *example()).emit(tmp_path / "program.py")
    try:
        command = environment.command()
    except environment.Unavailable as reason:
        pytest.skip(f"the real library with a mock chip cannot be had here: {reason}")
    done = subprocess.run(
        [*command, "program.py"], cwd=tmp_path, env=environment.variables(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["float32 (1, 19, 4)", "bool (1, 32)", "int64 (1, 3)"]


def test_a_script_takes_and_gives_in_the_models_order(tmp_path):
    """The order does not depend on the order in which the model computes."""
    x, y, unused = random(2, 3), random(4, 5), random(7)

    def late_first(x, y, unused):
        plus = y + 1
        return x * 2, plus

    [line] = judged([store(compiled_for(late_first, x, y, unused), tmp_path / "order")])
    assert line["accepted"], line
    assert line["outputs"] == [["float32", [2, 3]], ["float32", [4, 5]]]
    text = (tmp_path / "order" / "program.py").read_text()
    assert "def run(device, w, leaves_0, leaves_1):" in text


def test_the_judge_refuses_what_the_library_refuses(tmp_path):
    """Otherwise the judge's acceptance would prove nothing."""
    folder = store(compiled_for(nn.Linear(8, 8), random(2, 8)), tmp_path / "wrong")
    script = (folder / "program.py").read_text()
    (folder / "program.py").write_text(script.replace("ttnn.linear(", "ttnn.linear(w, "))
    [line] = judged([folder])
    assert not line["accepted"]
    assert "incompatible function arguments" in line["refusal"]


def test_a_script_needs_ttnn_numpy_and_safetensors_alone(tmp_path):
    files = compiled_for(Small().eval(), *example()).emit(tmp_path / "program.py")
    assert sorted(path.name for path in files) == ["program.py", "program.safetensors"]
    tree = ast.parse(files[0].read_text())
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert imported == {"pathlib", "numpy", "ttnn", "safetensors"}


def test_a_script_says_where_each_part_comes_from_and_what_it_gives(tmp_path):
    compiled_for(Small().eval(), *example()).emit(tmp_path / "program.py")
    text = (tmp_path / "program.py").read_text()
    assert "    # attention" in text
    assert "# bfloat16[1, 1, 16, 32]" in text
    assert max(map(len, text.splitlines())) <= 130


def test_names_of_the_script_itself_are_not_taken():
    assert Builder().fresh("device") == "device_2"


def functions_of(compiled, folder):
    """Return the functions of a model's script, with a library that only has the names of dtypes."""
    compiled.emit(folder / "program.py")
    names = {name: name for name in ("bfloat16", "float32", "int32", "uint32")}
    library = SimpleNamespace(**names, Tensor=lambda array, *place: array)
    namespace = {"__name__": "emitted", "__file__": str(folder / "program.py"), "ttnn": library}
    code = (folder / "program.py").read_text().replace("import ttnn\n", "")
    exec(compile(code, "program.py", "exec"), namespace)
    return namespace


def test_a_scripts_arrays_are_on_the_device_as_they_are(tmp_path):
    on_device = functions_of(compiled_for(lambda x: x + 1, random(2, 4)), tmp_path)["on_device"]
    least = torch.finfo(torch.float32).min
    given = torch.tensor([[least, -least], [-math.inf, math.inf], [1.0, -0.0]])
    for place in (given, given.t()):
        sent = torch.from_numpy(on_device(place.numpy(), "bfloat16", None, None))
        assert torch.equal(sent.bfloat16().isinf(), place.isinf())
        assert torch.equal(sent[sent.abs() <= 1], place[place.abs() <= 1])
        assert torch.equal(torch.from_numpy(on_device(place.numpy(), "float32", None, None)), place)
    assert on_device(numpy.array([2**31 - 1, -(2**31)]), "int32", None, None).dtype == numpy.int32
    for number, dtype in ((2**31, "int32"), (-1, "uint32")):
        with pytest.raises(OverflowError, match=dtype):
            on_device(numpy.array([number]), dtype, None, None)


def test_a_script_refuses_integers_that_its_program_is_not_for(tmp_path):
    """Rows that a table lacks would be read beside it."""
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4))
    run = functions_of(compiled_for(model, torch.tensor([[1, 2]])), tmp_path)["run"]
    for ids in ([[10, 0]], [[0, -1]]):
        with pytest.raises(OverflowError, match="outside 0 … 9"):
            run(None, {}, numpy.array(ids))


def test_the_weights_in_the_file_are_those_of_the_model(tmp_path):
    layer = nn.Linear(4, 3)
    arrays = functions_of(compiled_for(layer, random(2, 4)), tmp_path)["read"]()
    stored = torch.from_numpy(next(array for array in arrays.values() if array.shape == (4, 3)).copy())
    assert torch.equal(stored, layer.weight.t().to(torch.bfloat16).float())
    assert torch.equal(torch.from_numpy(arrays["example_0"].copy()), random(2, 4))


def test_a_model_of_which_ops_stay_has_no_single_program(tmp_path):
    compiled = compiled_for(lambda x: torch.sort(x.relu(), stable=True)[0] + 1, random(2, 8))
    with pytest.raises(CompileError, match=r"aten\.sort\.stable"):
        compiled.emit(tmp_path / "program.py")
    assert not list(tmp_path.iterdir())


def test_a_target_without_programs_says_so(tmp_path):
    compiled = torchport.compile(nn.Linear(4, 4), (random(2, 4),), target="host")
    with pytest.raises(TargetError, match="writes no programs"):
        compiled.emit(tmp_path / "program.py")


def test_a_file_that_cannot_be_written_is_one_message(tmp_path):
    compiled = compiled_for(nn.Linear(4, 4), random(2, 4))
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="cannot be written"):
        compiled.emit(tmp_path / "file" / "program.py")

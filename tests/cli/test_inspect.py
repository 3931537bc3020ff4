"""`torchport inspect`, on files that `torchport compile -o` wrote."""

import os

import pytest
import torch
from torch import nn

import torchport
from runtime.crafted_files import change_package
from torchport.records import PackageSummary


@pytest.mark.parametrize(("name", "kind"), [("net.pt2", "torch.export archive"), ("net.pt", "TorchScript")])
def test_the_contents_of_a_file_are_shown(command, models, tmp_path, name, kind):
    path = tmp_path / name
    line = ("compile", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu", "-o", path)
    assert command(*line).code == 1  # the file is still written
    ran = command("inspect", path)
    assert ran.code == 0, ran.err
    for text in (
        kind,
        "on host",
        "float32[2, 4]",
        "torchport 0.",
        "keep_ops=['aten.relu']",
        "kept_by_option",
    ):
        assert text in ran.out
    found = PackageSummary.from_json(command("inspect", path, "--json").json)
    assert (found.format, found.target, found.bytes) == (name.rpartition(".")[2], "host", path.stat().st_size)
    assert found.programs[0].coverage.ops_remain == 2


def test_other_files_fail(command, models, tmp_path):
    ran = command("inspect", models)
    assert ran.code == 2
    assert "is not a package" in ran.err


def test_control_characters_in_a_files_names_are_not_interpreted(command, models, tmp_path):
    path = tmp_path / "net.pt2"
    command("compile", f"{models}::load", "--target", "host", "-o", path)

    def change(data):
        for place in (data, data["programs"][0]["record"], data["programs"][0]["record"]["coverage"]):
            place["model"] = "\x1b]0;owned\x07\x9b2Jnet\udc80"

    bad = change_package(path, tmp_path / "bad.pt2", change)
    for line in (("inspect", bad), ("inspect", bad, "--json"), ("run", bad), ("run", bad, "--json")):
        ran = command(*line)
        assert ran.code == 0, ran.err
        assert not set(ran.out) & set("\x1b\x07\x9b\udc80")
        assert "x1b]0;owned" in ran.out


@pytest.mark.parametrize("name", ["inspect", "run"])
def test_endless_files_are_refused_immediately(command, name, tmp_path):
    pipe = tmp_path / "pipe.pt2"
    os.mkfifo(pipe)
    for path in ("/dev/zero", pipe, tmp_path):
        ran = command(name, path)
        assert ran.code == 2
        assert "cannot be read: it is" in ran.err


def test_an_unknown_extension_is_refused_before_compiling(command, models, tmp_path):
    ran = command("compile", f"{models}::load", "--target", "host", "-o", tmp_path / "net.onnx")
    assert ran.code == 2
    assert "must end in .pt2, or in .pt for TorchScript: call it net.pt2" in ran.err


def test_a_file_with_the_graph_and_its_weights_beside_it(command, models, tmp_path):
    path = tmp_path / "net.pt2"
    line = ("compile", f"{models}::load", "--target", "host", "-o", path)
    assert command(*line, "--with-graph", "--separate-weights", "--no-compiled-form").code == 0
    assert len(list(tmp_path.glob("net-*.safetensors"))) == 1
    # A different batch size than it was compiled for.
    ran = command("run", path, "--inputs", f"{models}::inputs", "--json")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("flag", ["--with-graph", "--separate-weights"])
def test_torchscript_cannot_store_the_graph_or_separate_weights(command, models, tmp_path, flag):
    ran = command("compile", f"{models}::load", "--target", "host", "-o", tmp_path / "net.pt", flag)
    assert ran.code == 2
    assert "call it net.pt2" in ran.err


def test_options_about_file_contents_require_a_file(command, models):
    ran = command("compile", f"{models}::load", "--target", "host", "--with-graph")
    assert ran.code == 2
    assert "require -o FILE" in ran.err


def test_what_a_program_writes_is_shown(command, tmp_path):
    class Adds(nn.Module):
        def forward(self, x, total):
            total.add_(x)
            return x * 2

    compiled = torchport.compile(Adds(), (torch.ones(2), torch.ones(2)), target="host")
    torchport.save(compiled, tmp_path / "net.pt2")
    assert "writes [0][1]" in command("inspect", tmp_path / "net.pt2").out

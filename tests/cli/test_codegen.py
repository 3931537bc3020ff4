"""`torchport codegen`."""

import runpy

import torch

from torchport.records import GeneratedCode


def test_a_model_is_written_with_its_weights(command, models, tmp_path):
    ran = command("codegen", f"{models}::load", "-o", tmp_path / "net.py", "--class-name", "Net")
    assert ran.code == 0, ran.err
    assert "bit for bit" in ran.out
    made = runpy.run_path(str(tmp_path / "net.py"))["load_model"]()
    assert type(made).__name__ == "Net"
    assert made(torch.ones(2, 4))["logits"].shape == (2, 4)
    assert set(torch.load(tmp_path / "net.pth")) == {
        "encoder.0.weight",
        "encoder.0.bias",
        "encoder.2.weight",
        "encoder.2.bias",
    }


def test_without_a_file_the_code_is_printed(command, models):
    ran = command("codegen", f"{models}::load", "--flat", "--shapes")
    assert ran.code == 0, ran.err
    assert "class Load(nn.Module):" in ran.out
    assert "self.encoder_0 = nn.Linear(4, 4)" in ran.out
    compile(ran.out, "printed", "exec")


def test_json(command, models, tmp_path):
    ran = command("codegen", f"{models}::load", "-o", tmp_path / "net.py", "--json")
    record = GeneratedCode.from_json(ran.json)
    assert record.verified
    assert record.code == (tmp_path / "net.py").read_text()
    assert record.weights_path == str(tmp_path / "net.pth")


def test_safetensors_and_other_endings(command, models, tmp_path):
    weights = tmp_path / "net.safetensors"
    assert command("codegen", f"{models}::load", "-o", tmp_path / "net.py", "--weights", weights).code == 0
    assert weights.is_file()
    ran = command("codegen", f"{models}::load", "-o", tmp_path / "b.py", "--weights", tmp_path / "b.onnx")
    assert ran.code == 2
    assert ".pth or .safetensors" in ran.err
    assert str(tmp_path / "b.onnx") in ran.err
    assert not (tmp_path / "b.py").exists()


def test_code_and_weights_must_be_different_files(command, models, tmp_path):
    ran = command("codegen", f"{models}::load", "-o", tmp_path / "net.pth")
    assert ran.code == 2
    assert "the code and its weights cannot be one file: call the code net.py" in ran.err
    assert not (tmp_path / "net.pth").exists()


def test_a_model_without_values_is_printed(command):
    ran = command("codegen", "hf:bert-base-uncased", "--no-weights", "--meta")
    assert ran.code == 0, ran.err
    assert "self.layer = nn.ModuleList([BertLayer() for _ in range(12)])" in ran.out


def test_a_model_that_raises_is_named_with_its_line(command, models):
    ran = command("codegen", f"{models}::load_broken")
    assert ran.code == 2
    assert "ValueError: three is odd" in ran.err
    assert "models.py:" in ran.err

"""Generated files reproduce the model, in both forms, and read as if a person had written them."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM

from codegen.round_trip import assert_round_trip, generate
from torchport import trace_graph, zoo

NUMBERED = re.compile(
    r"\b(add|mul|sub|div|view|reshape|getitem|transpose|permute|matmul|linear|conv2d|relu)_\d+\b"
)


@pytest.fixture(scope="module")
def resnet():
    made = zoo.load("torchvision:resnet18", weights=False)
    return SimpleNamespace(module=made.module, args=(torch.rand(1, 3, 64, 64),), kwargs={})


@pytest.fixture(scope="module")
def bert():
    """BERT as published, except for the widths."""
    sizes = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 96}
    model = BertForMaskedLM(BertConfig(**sizes)).eval()
    return SimpleNamespace(module=model, args=(), kwargs={"input_ids": torch.randint(0, 30000, (1, 32))})


def test_resnet_18_reads_like_handwritten_code(resnet, tmp_path):
    texts = assert_round_trip(resnet.module, resnet.args, tmp_path, others=[(torch.rand(2, 3, 96, 80),)])
    text = texts["hierarchical"]
    assert len(text.splitlines()) < 250
    assert not NUMBERED.search(text)
    assert re.findall(r"^class (\w+)", text, re.M) == ["BasicBlock", "BasicBlockWithDownsample", "Net"]
    assert "self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)" in text
    assert "self.layer1 = nn.Sequential(BasicBlock(64), BasicBlock(64))" in text
    assert re.findall(r"^class (\w+)", texts["flat"], re.M) == ["Net"]


def test_bert_reads_like_handwritten_code(bert, tmp_path):
    text, made = generate(bert.module, bert.args, tmp_path, bert.kwargs)
    assert len(text.splitlines()) < 250
    assert not NUMBERED.search(text)
    assert "self.layer = nn.ModuleList([BertLayer() for _ in range(12)])" in text
    assert "for layer in self.layer:\n            hidden_states = layer(hidden_states)" in text
    assert made.cls.predictions.decoder.weight is made.bert.embeddings.word_embeddings.weight
    longer = {"input_ids": torch.randint(0, 30000, (2, 48))}
    with torch.no_grad():
        assert torch.equal(made(**longer).logits, bert.module(**longer).logits)


def test_generation_is_deterministic(resnet):
    texts = {trace_graph(resnet.module, resnet.args).to_code("Net") for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize("form", [True, False])
def test_code_is_formatted_as_ruff_formats_it(resnet, bert, tmp_path, form):
    path = tmp_path / "net.py"
    for model in (resnet, bert):
        text = trace_graph(model.module, model.args, model.kwargs).to_code(
            "Net", weights="net.pth", hierarchy=form
        )
        path.write_text(text)
        for command in (["format", "--check", "--diff"], ["check", "--select", "E,F,I", "--ignore", "E501"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *command, "--isolated", str(path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("forked_python")
def test_the_file_runs_as_a_script_and_names_no_path_of_this_machine(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    text, _ = generate(model, (torch.rand(2, 4),), tmp_path)
    assert str(tmp_path) not in text
    done = subprocess.run(
        [sys.executable, "net.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tensor(")


def test_weights_may_be_safetensors(tmp_path):
    from safetensors.torch import load_file

    model = nn.Sequential(nn.Linear(4, 3)).eval()
    _, made = generate(model, (torch.rand(2, 4),), tmp_path, weights="net.safetensors")
    assert torch.equal(load_file(tmp_path / "net.safetensors")["layer0.weight"], model[0].weight)
    assert torch.equal(made(torch.ones(1, 4)), model(torch.ones(1, 4)))


def test_shapes_are_added_as_comments_on_request():
    class Net(nn.Module):
        def forward(self, x):
            y = x.transpose(1, 2)
            return y + 1, y

    text = trace_graph(Net(), (torch.rand(2, 3, 5),)).to_code(shapes=True)
    assert "y = x.transpose(1, 2)  # [2, 5, 3]" in text


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(3, 3)
        self.act = nn.ReLU()

    def forward(self, x):
        return self.act(self.proj(x))


class CallsForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.named = nn.ModuleDict({"a": Block()})
        self.plain = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for layer in (*self.layers, self.named["a"]):
            x = layer.forward(x)  # bypasses `__call__`, and so all hooks
        for layer in self.plain:
            x = layer(x)
        return x


def test_modules_of_a_list_whose_forward_is_called_directly(tmp_path):
    texts = assert_round_trip(CallsForward().eval(), (torch.randn(2, 3),), tmp_path)
    assert "self.layers_0_proj = nn.Linear(3, 3)" in texts["hierarchical"]
    assert "self.plain = nn.ModuleList" in texts["hierarchical"]

"""Whole models on ttnn: no op stays on the host, data is transferred once, the real library accepts them.

Two of them run in `make test`, all of them in `make conformance`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import torchport
from targets.ttnn.programs import expected_outputs, judged, store
from torchport import zoo
from torchport.structure import tensors_in

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
QUICK = {"torchvision:resnet18", "hf-small:bert"}
TORCHVISION = """
resnet18 resnet50 vgg11 densenet121 mobilenet_v2 mobilenet_v3_small efficientnet_b0 regnet_y_400mf
convnext_tiny vit_b_16 swin_t swin_v2_t squeezenet1_0 shufflenet_v2_x1_0 googlenet inception_v3 alexnet
mnasnet1_0
""".split()
SMALL = """
bert roberta distilbert albert gpt2 opt bloom llama mistral qwen2 qwen3 t5 whisper segformer detr electra
deberta-v2 xlm-roberta gpt_neo gptj gpt_neox phi gemma falcon vit deit beit bart mpnet squeezebert mobilebert
convnext dpt yolos
""".split()
NAMES = [f"torchvision:{name}" for name in TORCHVISION] + [f"hf-small:{name}" for name in SMALL]
MODELS = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.conformance]) for name in NAMES]


def bring_up(name: str):
    model = zoo.load(name, weights=False)
    compiled = torchport.compile(
        model.module, model.args, model.kwargs, target="ttnn", options={"cache": False}, name=name
    )
    with torch.no_grad():
        expected = model.module(*model.args, **model.kwargs)
        comparison = torchport.compare(compiled(*model.args, **model.kwargs), expected)
    return model, compiled, comparison, expected


@pytest.mark.parametrize("name", MODELS)
def test_nothing_stays_and_the_real_library_takes_the_program(name: str, tmp_path) -> None:
    model, compiled, comparison, expected = bring_up(name)
    coverage = compiled.coverage
    assert coverage.ops_remain == 0, [(row.op, row.detail) for row in coverage.stayed]
    used = len(compiled.record.islands[0].inputs)
    assert used <= len(list(tensors_in((model.args, dict(model.kwargs)))))
    assert coverage.transfers == used + len(compiled.record.islands[0].outputs)
    assert comparison.pcc >= 0.999
    [line] = judged([store(compiled, tmp_path / "model")])
    assert line["accepted"], line
    assert line["outputs"] == expected_outputs(compiled, expected)


def block(before: int, after: int) -> nn.Sequential:
    """Return two convolutions at one resolution."""
    layers: list[nn.Module] = []
    for channels in (before, after):
        layers += [nn.Conv2d(channels, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Downsamples twice and upsamples again, with skip connections between equal levels."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, 32), block(32, 64), block(64, 128)])
        self.rise = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
        self.up = nn.ModuleList([block(128, 64), block(64, 32)])
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        fine = self.down[0](x)
        middle = self.down[1](nn.functional.max_pool2d(fine, 2))
        coarse = self.down[2](nn.functional.max_pool2d(middle, 2))
        middle = self.up[0](torch.cat([self.rise[0](coarse), middle], 1))
        return self.head(self.up[1](torch.cat([self.rise[1](middle), fine], 1)))


@pytest.mark.conformance
def test_a_u_net(tmp_path) -> None:
    torch.manual_seed(0)
    model, x = UNet().eval(), torch.randn(1, 3, 64, 64)
    compiled = torchport.compile(model, (x,), target="ttnn", options={"cache": False})
    assert (compiled.coverage.ops_remain, compiled.coverage.transfers) == (0, 2)
    with torch.no_grad():
        assert torchport.compare(compiled(x), model(x)).pcc >= 0.999
    [line] = judged([store(compiled, tmp_path / "model")])
    assert line["accepted"], line
    assert line["outputs"] == [["float32", [1, 2, 64, 64]]]


@pytest.mark.conformance
def test_bert_large_with_a_question_answering_head(tmp_path) -> None:
    _, compiled, comparison, _ = bring_up(f"{BENCHMARKS}/bert_large_qa.py::load")
    assert (compiled.coverage.ops_remain, compiled.coverage.transfers) == (0, 3 + 2)
    assert comparison.pcc >= 0.99
    [line] = judged([store(compiled, tmp_path / "model")])
    assert line["accepted"], line
    assert line["outputs"] == [["float32", [1, 384]], ["float32", [1, 384]]]

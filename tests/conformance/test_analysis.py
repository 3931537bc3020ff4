"""Real architectures are analysed, and their FLOPs equal those that torch counts in a real run.

All of them run in `make conformance`, the first few of each family in `make test`.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import torchport
from conformance.architectures import TIMM, TRANSFORMERS, marked
from torchport import zoo
from torchport.records import ROOT
from torchport.structure import flatten

TORCHVISION = """
    squeezenet1_1 resnet18 shufflenet_v2_x0_5 mobilenet_v3_small mnasnet0_5 mobilenet_v2 squeezenet1_0
    googlenet alexnet resnet34 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 densenet169
    efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_v2_s regnet_y_400mf regnet_x_400mf
    regnet_y_800mf regnet_x_800mf regnet_x_1_6gf convnext_tiny vit_b_32 vit_b_16 swin_t swin_v2_t swin_s
    mobilenet_v3_large inception_v3 maxvit_t shufflenet_v2_x1_0 shufflenet_v2_x1_5 mnasnet1_0 mnasnet0_75
    vgg11 vgg11_bn vgg13
""".split()


ALL = [
    *marked("torchvision", TORCHVISION, 3),
    *marked("timm", TIMM, 4),
    *marked("hf-small", TRANSFORMERS, 5),
]


def test_there_are_forty_of_each_family() -> None:
    assert [len(set(names)) for names in (TORCHVISION, TIMM, TRANSFORMERS)] == [40, 40, 40]


@pytest.mark.parametrize("name", ALL)
def test_an_architecture_is_analysed_as_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.load(name, weights=False)
    analysis = torchport.analyze(model.module, model.args, model.kwargs, name=name)
    flat = flatten((model.args, dict(model.kwargs)))
    args, kwargs = flat.structure.rebuild([leaf.clone() for leaf in flat.leaves])
    # Use unfused attention, since torch counts nothing for the CPU's fused kernels.
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    counter = FlopCounterMode(display=False)
    model.module.requires_grad_(False)  # the counter fails on a parameter that is a module's input
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        result = model.module(*args, **kwargs)
    assert analysis.cost.flops == counter.get_total_flops() > 0
    assert analysis.cost.parameters == sum(tensor.numel() for tensor in model.module.parameters())
    assert analysis.modules.metadata.total_modules == len(list(model.module.modules()))
    paths = {path or ROOT for path, _ in model.module.named_modules(remove_duplicate=False)}
    assert {path for entry in analysis.modules.modules for path in entry.occurrences} == paths
    root = analysis.modules.modules[0]
    first = flatten(result).leaves[0]
    assert root.output_shapes[0] == ("x".join(map(str, first.shape)) or "scalar")
    assert not analysis.cost.uncounted

"""Real architectures are analysed, and their FLOPs are those that torch counts on a real run.

All of them run in `make conformance`, the first few of each family in `make test`.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import torchport
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
TIMM = """
    test_resnet test_vit test_efficientnet test_convnext test_mambaout test_byobnet test_nfnet resnet10t
    mobilenetv3_small_050 lcnet_050 tinynet_e semnasnet_075 mnasnet_small ghostnet_050 fbnetc_100
    regnetx_002 regnety_002 repvgg_a0 res2net50_14w_8s hardcorenas_a dla46_c vit_tiny_patch16_224
    deit_tiny_patch16_224 mixer_s32_224 gmlp_ti16_224 convnext_atto levit_128s edgenext_xx_small
    mobilevit_xxs poolformer_s12 test_vit2 test_vit3 tinynet_d lcnet_075 mobilenetv2_050 spnasnet_100
    pvt_v2_b0 xcit_nano_12_p16_224 coat_tiny crossvit_tiny_240
""".split()
TRANSFORMERS = """
    bert gpt2 llama t5 vit roberta distilbert albert electra opt bloom mistral qwen2 whisper clip segformer
    gptj gpt_neox bart mbart pegasus convnext swin deit beit dinov2 phi gemma falcon mpnet mixtral mamba
    deberta-v2 wav2vec2 xlm-roberta longformer funnel squeezebert resnet regnet
""".split()
IN_MAKE_TEST = {"torchvision": 3, "timm": 4, "hf-small": 5}


def _names(family: str, names: list[str]) -> list[object]:
    return [
        pytest.param(
            f"{family}:{name}",
            id=f"{family}:{name}",
            marks=[] if index < IN_MAKE_TEST[family] else [pytest.mark.conformance],
        )
        for index, name in enumerate(names)
    ]


ALL = [*_names("torchvision", TORCHVISION), *_names("timm", TIMM), *_names("hf-small", TRANSFORMERS)]


def test_there_are_forty_of_each_family() -> None:
    assert [len(set(names)) for names in (TORCHVISION, TIMM, TRANSFORMERS)] == [40, 40, 40]


@pytest.mark.parametrize("name", ALL)
def test_an_architecture_is_analysed_as_it_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = zoo.load(name, weights=False)
    analysis = torchport.analyze(model.module, model.args, model.kwargs, name=name)
    flat = flatten((model.args, dict(model.kwargs)))
    args, kwargs = flat.structure.rebuild([leaf.clone() for leaf in flat.leaves])
    # Attention by its definition, since torch counts nothing for the CPU's fused kernels.
    monkeypatch.setattr(torch.backends.mha, "get_fastpath_enabled", lambda: False)
    counter = FlopCounterMode(display=False)
    model.module.requires_grad_(False)  # the counter trips over a parameter that is a module's input
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

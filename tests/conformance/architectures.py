"""The architectures covered by the sweeps, and which of them run in `make test`."""

from __future__ import annotations

import pytest

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
MORE_TRANSFORMERS = """
    llava bitnet qwen3 blip dpt yolos phi3 gemma2 gemma3_text olmo cohere stablelm starcoder2 codegen fnet
    deberta roformer layoutlm mt5 nystromformer
""".split()
TORCHVISION = """
    squeezenet1_1 resnet18 mobilenet_v3_small alexnet googlenet mobilenet_v2 shufflenet_v2_x0_5
    mnasnet0_5 vgg11 vgg11_bn resnet34 resnet50 resnext50_32x4d wide_resnet50_2 densenet121 efficientnet_b0
    regnet_y_400mf regnet_x_400mf convnext_tiny vit_b_32 swin_t swin_v2_t mobilenet_v3_large inception_v3
    maxvit_t shufflenet_v2_x1_0 squeezenet1_0
""".split()


def marked(family: str, names: list[str], in_make_test: int) -> list[object]:
    """Return the architectures of a family as parameters: the first few always run, others in the sweep."""
    return [
        pytest.param(
            f"{family}:{name}",
            id=f"{family}:{name}",
            marks=[] if index < in_make_test else [pytest.mark.conformance],
        )
        for index, name in enumerate(names)
    ]

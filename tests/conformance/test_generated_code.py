"""Real architectures, written as code: both forms reproduce the model's results bit for bit.

`generate_code` compares with the model itself, on the example and at other sizes; it raises if a bit differs.
All of them run in `make conformance`, the first few of each family in `make test`.
"""

from __future__ import annotations

import pytest
import torch

import torchport
from codegen.round_trip import assert_same_bits, load
from conformance.full_inputs import load_with_full_inputs
from torchport import zoo

TORCHVISION = """
    squeezenet1_1 mobilenet_v3_small alexnet convnext_base convnext_small convnext_tiny
    deeplabv3_mobilenet_v3_large deeplabv3_resnet101 deeplabv3_resnet50 densenet121 densenet161
    densenet169 densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3
    efficientnet_b4 efficientnet_b5 efficientnet_v2_m efficientnet_v2_s fcn_resnet101 fcn_resnet50
    googlenet inception_v3 lraspp_mobilenet_v3_large maxvit_t mnasnet0_5 mnasnet0_75 mnasnet1_0
    mnasnet1_3 mobilenet_v2 mobilenet_v3_large regnet_x_1_6gf regnet_x_3_2gf regnet_x_400mf
    regnet_x_800mf regnet_x_8gf regnet_y_1_6gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf
    resnet101 resnet152 resnet18 resnet34 resnet50 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0
    shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0 swin_b swin_s swin_t swin_v2_b swin_v2_s
    swin_v2_t vit_b_16 vit_b_32 wide_resnet50_2 convnext_large efficientnet_b6 efficientnet_b7
    efficientnet_v2_l regnet_x_16gf regnet_x_32gf regnet_y_128gf regnet_y_16gf regnet_y_32gf
    resnext101_32x8d resnext101_64x4d vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn
    vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2
""".split()
TIMM = """
    test_vit test_efficientnet cait_xxs24_224 coat_tiny coatnet_0_224 convit_tiny convmixer_768_32
    convnext_atto_rms cpubone_nano crossvit_tiny_240 cs3darknet_focus_s csatv2 davit_tiny
    deit3_small_patch16_224 densenet121 dla46x_c dpn48b edgenext_xx_small efficientformer_l1
    efficientformerv2_s0 efficientvim_m1 efficientvit_b0 efficientvit_m0 ese_vovnet19b_slim_dw
    eva02_tiny_patch14_224 fasternet_s fastvit_t12 flexivit_small focalnet_tiny_srf gcvit_xxtiny
    ghostnet_050 gmlp_ti16_224 halonet_h1 hardcorenas_b hgnet_tiny hiera_tiny_224 hrnet_w18_small
    iformer_s inception_next_atto inception_v3 lcnetv2_small legacy_seresnet18 legacy_xception
    levit_128s lowformer_b0 mnasnet_small mobilenetv3_small_050 mobilevit_xxs mvitv2_tiny nest_tiny
    nextvit_small pit_ti_224 poolformerv2_s12 pvt_v2_b0 rdnet_tiny regnetx_002 repghostnet_050
    repvit_m1_0 res2net50_14w_8s resnest14d resnetv2_18 rexnet_100 sam2_hiera_tiny selecsls42
    sequencer2d_s shvit_s1 skresnet18 starnet_s050 swiftformer_xs swin_s3_tiny_224 test_byobnet
    test_convnext test_convnext2 test_convnext3 test_efficientnet_evos test_efficientnet_gn
    test_efficientnet_ln test_mambaout test_nfnet test_resnet test_vit2 test_vit3 test_vit4
    tiny_vit_5m_224 tnt_s_legacy_patch16_224 tresnet_m twins_svt_small visformer_tiny
    vit_relpos_small_patch16_224 vitamin_small_224 volo_d1_224 xception41p xcit_nano_12_p8_224 resnet10t
    lcnet_050 tinynet_e semnasnet_075 fbnetc_100 regnety_002 hardcorenas_a dla46_c deit_tiny_patch16_224
    convnext_atto vit_tiny_patch16_224 repvgg_a0 mixer_s32_224
""".split()
TRANSFORMERS = """
    bert llama t5 gpt2 albert align arcee audio-spectrogram-transformer autoformer aya_vision bart beit
    big_bird bit blenderbot-small bloom bros canine chinese_clip_vision_model clip clip_vision_model
    codegen conditional_detr convnext cosmos3_edge cosmos3_omni ctrl data2vec-audio deepseek_vl deit
    dinov2 dinov3_vit distilbert electra embedding_gemma2_text ernie eurobert exaone4_5 falcon falcon_h1
    flava florence2 fsmt funnel gemma gemma3 gemma3n_audio gemma4 gemma4_unified git glm46v glm4v
    glm_image glm_ocr_text glmasr_encoder got_ocr2 gpt_neo gpt_neox gptj gradium_phonon_tts
    granite_speech granite_speech_plus helium hyperclovax_vision_v2 idefics2 ijepa jais2 layoutlm
    lighton_ocr llava_next_video mamba markuplm maskformer-swin mbart metaclip_2 minicpm3 minicpmv4_6
    mistral mistral3 mlcd_vision_model mobilebert modernbert-decoder molmo2_text moshi mpnet mpt
    muse_glimmer nanochat neomme nomic_bert olmo2 openai-gpt opt owlv2 parakeet_rnnt pegasus phi
    phi4_multimodal pixio pocket_tts pp_ocrv6_tiny_rec qwen2 qwen2_5_omni_thinker qwen3 qwen3_vl radio
    regnet rf_detr roberta roformer rwkv sam2_hiera_det_model sam3 sam3_tracker sam3_vision_model
    sam_hq_vision_model seamless_m4t siglip siglip_vision_model stablelm swiftformer swin
    textnet timm_wrapper tipsv2_vision_model ultrabert videoprism vit whisper
""".split()
# Their control flow depends on a tensor's values.
REFUSED = (
    "hf-small:longformer hf-small:led hf-small:fastspeech2_conformer hf-small:jetmoe "
    "hf-small:switch_transformers hf-small:siglip2"
).split()
# Additional architectures that are traced with masks and labels.
MORE_TRANSFORMERS = """
    mixtral olmo cohere starcoder2 deberta deberta-v2 nystromformer squeezebert xlm-roberta phi3 gemma2 yolos
    dpt blip llava mt5 m2m_100 marian xlnet layoutlmv3 wav2vec2 hubert segformer resnet
    switch_transformers
""".split()
# Their control flow depends on values, in eager mode and while they are compiled.
REFUSED_WITH_LABELS = "longformer led fastspeech2_conformer jetmoe siglip2 xlm reformer".split()
# Takes gigabytes and minutes.
TOO_LARGE = "sam3 sam3_tracker".split()
IN_MAKE_TEST = {"torchvision": 1, "timm": 1, "hf-small": 2}


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


@pytest.mark.parametrize("name", ALL)
def test_both_forms_equal_the_model_bit_for_bit(name: str, tmp_path) -> None:
    _assert_both_forms_equal(zoo.load(name, weights=False), tmp_path)


@pytest.mark.parametrize(
    "name",
    _names("hf-small", [name for name in TRANSFORMERS + MORE_TRANSFORMERS if name not in TOO_LARGE]),
)
def test_with_masks_and_labels_too(name: str, tmp_path) -> None:
    _assert_both_forms_equal(load_with_full_inputs(name.removeprefix("hf-small:")), tmp_path)


def _assert_both_forms_equal(model: zoo.Model, tmp_path) -> None:
    graph = torchport.trace_graph(model.module, model.args, model.kwargs)
    with torch.no_grad():
        torch.manual_seed(0)
        expected = model.module(*model.args, **model.kwargs)
    for hierarchy in (True, False):
        graph.generate_code(tmp_path / "net.py", tmp_path / "net.pth", "Net", hierarchy=hierarchy)
        made = load(tmp_path / "net.py")
        with torch.no_grad():
            torch.manual_seed(0)
            assert_same_bits(made(*model.args, **model.kwargs), expected)


@pytest.mark.conformance
@pytest.mark.parametrize("name", REFUSED_WITH_LABELS)
def test_with_labels_what_depends_on_values_is_refused_with_its_line(name: str) -> None:
    model = load_with_full_inputs(name)
    with pytest.raises(torchport.TorchportError, match=r"\.py:\d+ in .*values of a tensor"):
        torchport.trace_graph(model.module, model.args, model.kwargs)


@pytest.mark.conformance
@pytest.mark.parametrize("name", REFUSED)
def test_what_depends_on_values_is_refused_with_its_line(name: str) -> None:
    model = zoo.load(name, weights=False)
    with pytest.raises(torchport.TorchportError, match=r"\.py:\d+ in .*values of a tensor"):
        torchport.trace_graph(model.module, model.args, model.kwargs)

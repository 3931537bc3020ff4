"""How each row's model is built, with random weights, at the sizes of torch_ttnn's own table."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from small_nets import ConvAutoencoder, Mnist, UNet, YoloV3, linear_autoencoder
from torch import nn

from torchport.zoo.model import Model
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

Build = Callable[..., tuple[nn.Module, Mapping[str, torch.Tensor] | tuple[object, ...]]]

# Models that are unavailable, with the reason.
ABSENT = {
    "GaussianSplatting": "the renderer is a program of its own that no package has",
    "GaussianSplatting-train": "the renderer is a program of its own that no package has",
    "YOLOv5": "its package is for Python up to 3.10; the network of that name in ultralytics is another one",
}
# Too large for 8 GB: explained in full size, without weights, and run in a small configuration.
LARGE = {
    "Falcon-7B": {"num_hidden_layers": 2, "hidden_size": 1136},
    "Llama": {
        "num_hidden_layers": 2,
        "hidden_size": 1024,
        "intermediate_size": 2752,
        "num_attention_heads": 16,
    },
}
# Rows of `generate`, and how many tokens each generates.
GENERATING = {
    "FLAN-T5": 19, "GPTNeo": 55, "OPT": 30, "Whisper": 19, "codegen": 15, "t5-base": 19, "t5-large": 19,
    "t5-small": 19,
}  # fmt: skip
# Rows whose shapes depend on values: torch.compile breaks their graphs there, and these graphs are run.
BROKEN = ("MobileNetSSD", "ViLT", "ssd300_vgg16", "ssdlite320_mobilenet_v3_large")
# Rows whose results are closer together than bfloat16 can resolve.
IN_FLOAT32 = ("DETR", "GLPN-KITTI")
# Notes shown next to a row's figures.
NOTES = {
    "DETR": "in float32",
    "Falcon-7B": "run with 2 layers, 1,136 wide",
    "GLPN-KITTI": "in float32",
    "Llama": "run with 2 layers, 1,024 wide",
    "speecht5-tts": "the forward that generate_speech calls, with 24 frames",
}


def options_of(row: str) -> dict[str, object]:
    """Return the target's options with which a row is run."""
    in_float32 = row.endswith("-train") or row in BROKEN or row in IN_FLOAT32
    return {"dtype": "float32"} if in_float32 else {}


def load(row: str, *, small: bool = False) -> Model:
    """Return a row's model, in evaluation mode.

    Args:
        row: the row's name.
        small: whether models that are too large to run are built in a small configuration.

    Raises:
        KeyError: there is no such row, or its model is unavailable.
    """
    name = row.removesuffix("-train")
    ensure_torchvision_ops()  # transformers imports torchvision, whose compiled ops may not match this torch
    torch.manual_seed(0)
    module, given = _builder(name, LARGE.get(name, {}) if small else {})()
    _fill_zeros(module)
    inputs = given if isinstance(given, tuple) else ()
    return Model(row, module.eval(), inputs, {} if isinstance(given, tuple) else dict(given))


def _fill_zeros(module: nn.Module) -> None:
    """Set weights initialized to zeros, such as a ViT's head, to small values: zeros would hide any error."""
    for weight in module.parameters():
        if weight.dim() > 1 and not weight.is_meta and not weight.any():
            nn.init.normal_(weight, std=0.02)


def load_to_run(row: str) -> Model:
    """Return a row's model in the size in which it is run."""
    return load(row, small=True)


def _builder(name: str, changes: Mapping[str, object]) -> Build:
    if name in _BUILDERS:
        found = _BUILDERS[name]
        return functools.partial(found, **changes) if changes else found
    if "." in name or name in ("dla34", "hrnet_w18"):
        return functools.partial(_timm, name)
    return functools.partial(_torchvision, name)


def _image(*size: int) -> tuple[object, ...]:
    return (torch.rand(*size),)


def _torchvision(name: str, *size: int, **options: object) -> tuple[nn.Module, tuple[object, ...]]:
    import torchvision

    given = {"ssd300_vgg16": (3, 480, 640), "ssdlite320_mobilenet_v3_large": (3, 480, 640)}
    sizes = {"regnet_y_128gf": 384, "vit_h_14": 518, "swin_v2_t": 256, "swin_v2_s": 256, "swin_v2_b": 256}
    if name == "vit_h_14":
        options["image_size"] = 518
    if name in given:
        model = torchvision.models.get_model(name, weights=None, weights_backbone=None)
        return model, ([torch.rand(*(size or given[name]))],)
    side = sizes.get(name, 224)
    return torchvision.models.get_model(name, weights=None, **options), _image(*(size or (1, 3, side, side)))


def _timm(name: str) -> tuple[nn.Module, tuple[object, ...]]:
    import timm

    model = timm.create_model(name, pretrained=False)
    sides = {"lite1": 240, "lite2": 260, "lite3": 300, "lite4": 380, "xception71": 299, "inception_v4": 299}
    side = next((side for part, side in sides.items() if part in name), 224)
    return model, _image(1, 3, side, side)


def _tokens(
    config: Any, *size: int, names: tuple[str, ...] = ("input_ids",), padded: int = 0
) -> dict[str, torch.Tensor]:
    """Return token ids, a mask, and segment ids, for the names given."""
    mask = torch.ones(size, dtype=torch.int64)
    mask[:, :padded] = 0
    made = {
        "input_ids": torch.randint(3, config.vocab_size, size),
        "inputs": torch.randint(6, config.vocab_size, size) if "inputs" in names else mask,
        "attention_mask": mask,
        "token_type_ids": torch.zeros(size, dtype=torch.int64),
    }
    return {name: made[name] for name in names}


def _transformers(kind: str, inputs: Callable[[Any], Mapping[str, torch.Tensor]], **config: object) -> Build:
    """Return a function that builds a transformers class from its configuration."""

    def build(**changes: object) -> tuple[nn.Module, Mapping[str, torch.Tensor]]:
        import transformers

        model_class = getattr(transformers, kind)
        made = model_class.config_class(**{**config, **changes})
        return model_class(made), inputs(made)

    return build


def _of_tokens(
    kind: str, *size: int, names: tuple[str, ...] = ("input_ids",), padded: int = 0, **config: object
) -> Build:
    return _transformers(kind, lambda made: _tokens(made, *size, names=names, padded=padded), **config)


def _of_image(kind: str, *size: int, **config: object) -> Build:
    return _transformers(kind, lambda made: {"pixel_values": torch.rand(*size)}, **config)


def _clip(config: Any) -> dict[str, torch.Tensor]:
    words = _tokens(config.text_config, 2, 7, names=("input_ids", "attention_mask"))
    return {"pixel_values": torch.rand(1, 3, 224, 224), **words}


def _vilt(config: Any) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.randint(3, config.vocab_size, (1, 8)),
        "pixel_values": torch.rand(1, 3, 384, 512),
        "pixel_mask": torch.ones(1, 384, 512, dtype=torch.int64),
    }


def _t5(*size: int, **config: object) -> Build:
    return _of_tokens("T5ForConditionalGeneration", *size, decoder_start_token_id=0, **config)


def _speech(config: Any) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.randint(3, config.vocab_size, (1, 24)),
        "decoder_input_values": torch.randn(1, 24, config.num_mel_bins),
        "speaker_embeddings": torch.randn(1, config.speaker_embedding_dim),
    }


def _diffusion() -> tuple[nn.Module, tuple[object, ...]]:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8)
    return model, (torch.randn(1, 4, 64, 64), 0, torch.randn(1, 9, 768))


def _pytorchcv(name: str) -> tuple[nn.Module, tuple[object, ...]]:
    from pytorchcv.model_provider import get_model

    return get_model(name, pretrained=False), _image(1, 3, 224, 224)


_MASKED = ("input_ids", "attention_mask")
_ALBERT = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
_BRAIN, _CARVANA = (32, 64, 128, 256, 512), (64, 128, 256, 512, 1024)
_FALCON = {
    "vocab_size": 65024, "hidden_size": 4544, "num_attention_heads": 71, "multi_query": True,
    "parallel_attn": True, "new_decoder_architecture": False, "alibi": False, "bias": False,
}  # fmt: skip
_BUILDERS: dict[str, Build] = {
    "Autoencoder (linear)": lambda: (linear_autoencoder(), _image(1, 784)),
    "Autoencoder (conv)": lambda: (ConvAutoencoder(), _image(1, 1, 28, 28)),
    "Mnist": lambda: (Mnist(), _image(1, 1, 28, 28)),
    "U-Net": lambda: (UNet(_BRAIN, sigmoid=True), _image(1, 3, 256, 256)),
    "Unet-brain": lambda: (UNet(_BRAIN, sigmoid=True), _image(1, 3, 256, 256)),
    "Unet-carvana": lambda: (UNet(_CARVANA, sigmoid=False), _image(1, 3, 224, 224)),
    "YOLOv3": lambda: (YoloV3(), _image(1, 3, 512, 512)),
    "HardNet": functools.partial(_pytorchcv, "hardnet68"),
    "OpenPose V2": functools.partial(_pytorchcv, "lwopenpose2d_mobilenet_cmupan_coco"),
    "Stable Diffusion V2": _diffusion,
    "MobileNetV2": functools.partial(_torchvision, "mobilenet_v2"),
    "ResNet18": functools.partial(_torchvision, "resnet18"),
    "ResNet50": functools.partial(_torchvision, "resnet50", 4, 3, 224, 224),
    "MobileNetSSD": functools.partial(_torchvision, "ssdlite320_mobilenet_v3_large", 3, 320, 320),
    "BERT": _of_tokens(
        "BertForQuestionAnswering", 8, 384, names=(*_MASKED, "token_type_ids"), hidden_size=1024,
        num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
    ),
    "DPR": _of_tokens("DPRReader", 1, 25, names=_MASKED),
    "Perceiver IO": _of_tokens(
        "PerceiverForMaskedLM", 1, 2048, names=("inputs", "attention_mask"), qk_channels=256, v_channels=1280
    ),
    "RoBERTa": _of_tokens(
        "XLMRobertaForMaskedLM", 1, 10, names=_MASKED, vocab_size=250002, max_position_embeddings=514,
        type_vocab_size=1, layer_norm_eps=1e-5,
    ),
    "albert/albert-base-v2": _of_tokens("AlbertForMaskedLM", 1, 9, **_ALBERT),
    "albert/albert-base-v2-classification": _of_tokens("AlbertForTokenClassification", 1, 12, **_ALBERT),
    "albert/albert-large-v2": _of_tokens(
        "AlbertForMaskedLM", 1, 9, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096,
    ),
    "albert/albert-xlarge-v2": _of_tokens(
        "AlbertForMaskedLM", 1, 9, hidden_size=2048, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=8192,
    ),
    "albert/albert-xxlarge-v2": _of_tokens(
        "AlbertForMaskedLM", 1, 9, hidden_size=4096, num_hidden_layers=12, num_attention_heads=64,
        intermediate_size=16384,
    ),
    "distilbert-base-uncased": _of_tokens("DistilBertModel", 1, 16),
    "textattack/albert-base-v2-imdb": _of_tokens("AlbertForSequenceClassification", 1, 9, **_ALBERT),
    "twmkn9/albert-base-v2-squad2": _of_tokens("AlbertForQuestionAnswering", 1, 14, **_ALBERT),
    "Bloom": _of_tokens(
        "BloomForCausalLM", 1, 32, names=_MASKED, padded=20, vocab_size=250880, hidden_size=1536, n_layer=24,
        n_head=16,
    ),
    "CLIP": _transformers("CLIPModel", _clip),
    "DETR": _of_image("DetrForObjectDetection", 1, 3, 720, 1280, use_pretrained_backbone=False),
    "DINOv2": _of_image("Dinov2Model", 1, 3, 224, 224, image_size=518, patch_size=14),
    "GLPN-KITTI": _of_image(
        "GLPNForDepthEstimation", 1, 3, 480, 640, depths=[3, 8, 27, 3], hidden_sizes=[64, 128, 320, 512]
    ),
    "GPT-2": _of_tokens("GPT2ForSequenceClassification", 1, 7, pad_token_id=50256),
    "SegFormer": _of_image("SegformerForSemanticSegmentation", 1, 3, 512, 512, num_labels=150),
    "YOLOS": _of_image(
        "YolosForObjectDetection", 1, 3, 512, 672, hidden_size=192, num_attention_heads=3,
        intermediate_size=768, image_size=[800, 1333], use_mid_position_embeddings=False, num_labels=91,
    ),
    "facebook/deit-base-patch16-224": _of_image("ViTForImageClassification", 1, 3, 224, 224, num_labels=1000),
    "Falcon-7B": _of_tokens("FalconForCausalLM", 1, 7, num_hidden_layers=32, **_FALCON),
    "Llama": _of_tokens("LlamaForCausalLM", 1, 32, names=_MASKED, padded=20),
    "ViLT": _transformers("ViltForQuestionAnswering", _vilt, num_labels=3129),
    "FLAN-T5": _t5(
        1, 15, d_model=512, d_ff=1024, num_layers=8, num_decoder_layers=8, num_heads=6, d_kv=64,
        feed_forward_proj="gated-gelu",
    ),
    "t5-small": _t5(1, 10),
    "t5-base": _t5(1, 10, d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12),
    "t5-large": _t5(1, 10, d_model=1024, d_ff=4096, num_layers=24, num_decoder_layers=24, num_heads=16),
    "GPTNeo": _of_tokens(
        "GPTNeoForCausalLM", 1, 45, hidden_size=768, num_layers=12, num_heads=12,
        attention_types=[[["global", "local"], 6]],
    ),
    "OPT": _of_tokens(
        "OPTForCausalLM", 1, 59, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, ffn_dim=4096,
        word_embed_proj_dim=512, do_layer_norm_before=False,
    ),
    "codegen": _of_tokens(
        "CodeGenForCausalLM", 1, 5, vocab_size=51200, n_positions=2048, n_ctx=2048, n_embd=1024, n_layer=20,
        n_head=16, rotary_dim=32,
    ),
    "Whisper": _transformers(
        "WhisperForConditionalGeneration", lambda made: {"input_features": torch.randn(1, 80, 3000)},
        d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    ),
    "speecht5-tts": _transformers("SpeechT5ForTextToSpeech", _speech),
}  # fmt: skip

"""Generates each input of a transformers model by its name: tokens, images, audio, time series."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchport.zoo.hf_config import find_int, find_value, special_tokens

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LENGTH = 128
IMAGE_SIZE = 224
# The attributes in which configurations store the number of features per spectrogram frame.
MEL_BINS = (
    "num_mel_bins",
    "input_feat_per_channel",
    "feature_projection_input_dim",
    "num_mel_features",
    "n_mels",
    "feat_in",
    "input_feat_size",
    "feature_size",
    "input_dim",
)


@dataclass(frozen=True, slots=True)
class InputSizes:
    """The sizes that the model leaves open.

    Args:
        batch: the batch size.
        length: the number of tokens in a sample, or the model's maximum if that is smaller.
        image_size: an image's side, if the configuration does not set it.
        samples: the number of samples in a waveform.
        frames: the number of frames in a spectrogram, if the configuration does not set it.
    """

    batch: int = 1
    length: int = LENGTH
    image_size: int = IMAGE_SIZE
    samples: int = 16000
    frames: int = 128


class InputMaker:
    """Generates inputs for one model: the same ones each time, without torch's global generator.

    Args:
        module: the model.
        config: its configuration.
        sizes: the sizes that the model and its configuration leave open.
    """

    def __init__(self, module: nn.Module, config: PretrainedConfig, sizes: InputSizes) -> None:
        self.module = module
        self.config = config
        self.sizes = sizes
        self.generator = torch.Generator(device="cpu").manual_seed(0)
        most = find_int(config, "max_position_embeddings", "n_positions", default=sizes.length, prefer="text")
        self.length = max(1, min(sizes.length, most))
        parameters = inspect.signature(module.forward).parameters
        self.takes_patches = "grid_thw" in parameters
        self.takes_sequences_of_patches = "spatial_shapes" in parameters

    def noise(self, *shape: int) -> Tensor:
        """Return normally distributed values."""
        return torch.randn((self.sizes.batch, *shape), generator=self.generator, device="cpu")

    def integers(self, high: int, *shape: int) -> Tensor:
        """Return integers from 0 up to, but excluding, `high`."""
        shape = (self.sizes.batch, *shape)
        return torch.randint(0, max(high, 1), shape, generator=self.generator, device="cpu")

    def ones(self, *shape: int) -> Tensor:
        """Return a mask that masks nothing out."""
        return torch.ones((self.sizes.batch, *shape), dtype=torch.long, device="cpu")

    def tokens(self) -> Tensor:
        """Return token ids that are not special tokens."""
        vocabulary = self.vocabulary()
        special = special_tokens(self.config)
        plain = torch.tensor([token for token in range(vocabulary) if token not in special], device="cpu")
        return plain[self.integers(len(plain), self.length)]

    def vocabulary(self) -> int:
        """Return the size of the vocabulary."""
        find = getattr(self.module, "get_input_embeddings", None)
        try:
            embeddings = find() if find is not None else None
        except (NotImplementedError, AttributeError):
            embeddings = None
        known = find_int(self.config, "vocab_size", "text_vocab_size", default=100, prefer="text")
        rows = getattr(embeddings, "num_embeddings", None)
        return min(known, rows) if isinstance(rows, int) else known

    def channels(self) -> int:
        """Return the number of colour channels of an image."""
        return find_int(
            self.config,
            "num_channels",
            "in_channels",
            "in_chans",
            "num_input_channels",
            default=3,
            prefer="vision",
        )

    def image_shape(self) -> tuple[int, int]:
        """Return an image's height and width."""
        size = find_value(self.config, "image_size", "img_size", "input_size", "crop_size", prefer="vision")
        if isinstance(size, Mapping):
            size = (size.get("height"), size.get("width"))
        if isinstance(size, (list, tuple)) and len(size) >= 2 and all(isinstance(side, int) for side in size):
            return size[-2], size[-1]
        side = size if isinstance(size, int) else self.sizes.image_size
        return side, side

    def video_frames(self) -> int:
        """Return the number of frames in a clip, or 0 if the model takes single images."""
        return find_int(
            self.config, "num_frames", "frames_per_clip", "video_length", default=0, prefer="vision"
        )

    def mel_bins(self) -> list[int]:
        """Return the possible numbers of features per spectrogram frame: the usual ones if none is set."""
        known = find_int(self.config, *MEL_BINS, default=0, prefer="audio")
        return [known] if known else [80, 128]

    def spectrogram_frames(self) -> int:
        """Return the number of frames in a spectrogram."""
        positions = find_int(self.config, "max_source_positions", default=0, prefer="audio")
        # An encoder with learned positions (Whisper's) takes one length, and halves it before adding them.
        return 2 * positions or self.sizes.frames


def _pixel_values(maker: InputMaker) -> list[Tensor]:
    if maker.takes_patches:
        return _patches(maker)
    if maker.takes_sequences_of_patches:
        side = find_int(maker.config, "patch_size", default=16, prefer="vision")
        return [maker.noise(GRID[1] * GRID[2], maker.channels() * side * side)]
    height, width = maker.image_shape()
    image = maker.noise(maker.channels(), height, width)
    frames = maker.video_frames()
    if not frames:
        return [image]
    return [maker.noise(frames, maker.channels(), height, width), image]


def _video(maker: InputMaker) -> list[Tensor]:
    height, width = maker.image_shape()
    return [maker.noise(maker.video_frames() or 4, maker.channels(), height, width)]


def _spectrogram(maker: InputMaker) -> list[Tensor]:
    frames = maker.spectrogram_frames()
    variants = []
    for bins in maker.mel_bins():
        variants += [maker.noise(bins, frames), maker.noise(frames, bins), maker.noise(1, frames, bins)]
    return variants


def _queries(maker: InputMaker) -> list[Tensor]:
    return [maker.noise(8, find_int(maker.config, "hidden_size", default=768))]


def _waveform(maker: InputMaker) -> list[Tensor]:
    variants = [maker.noise(maker.sizes.samples), maker.noise(1, maker.sizes.samples)]
    bins = find_value(maker.config, "num_mel_bins")
    length = find_value(maker.config, "max_length")
    if isinstance(bins, int) and isinstance(length, int):
        return [maker.noise(length, bins), *variants]
    return variants


def _boxes(maker: InputMaker) -> list[Tensor]:
    corner = maker.integers(400, maker.length, 2)
    return [torch.cat([corner, corner + 100], dim=-1)]


def _patches(maker: InputMaker) -> list[Tensor]:
    """Return the flattened patches of one image of `GRID`."""
    side = find_int(maker.config, "patch_size", default=14, prefer="vision")
    depth = find_int(maker.config, "temporal_patch_size", default=1, prefer="vision")
    count = GRID[0] * GRID[1] * GRID[2]
    flat = maker.noise(count, maker.channels() * depth * side * side)[0]
    return [flat, flat.view(count, maker.channels() * depth, side, side)]


def _past_values(maker: InputMaker) -> list[Tensor]:
    context = find_int(maker.config, "context_length", default=32)
    lags = find_value(maker.config, "lags_sequence")
    past = context + (max(lags) if isinstance(lags, (list, tuple)) and lags else 0)
    channels = find_int(maker.config, "num_input_channels", "input_size", default=1)
    several, single = maker.noise(past, channels), maker.noise(past)
    return [single, several] if channels == 1 else [several, single]


def _time_features(maker: InputMaker) -> list[Tensor]:
    count = find_int(maker.config, "num_time_features", default=0)
    return [maker.noise(_past_values(maker)[0].shape[1], count)]


GRID = (1, 4, 4)  # frames, rows and columns of patches; models merge them in 2x2 squares

# The name of an input → the forms in which a model may expect it, the most likely first.
MAKERS: Mapping[str, Callable[[InputMaker], list[Tensor]]] = {
    "input_ids": lambda maker: [maker.tokens()],
    "decoder_input_ids": lambda maker: [maker.tokens()],
    "attention_mask": lambda maker: [maker.ones(maker.length)],
    "token_type_ids": lambda maker: [maker.integers(1, maker.length)],
    "pixel_values": _pixel_values,
    "image": _pixel_values,
    "pixel_values_videos": _video,
    "input_features": _spectrogram,
    "input_features_mask": lambda maker: [maker.ones(maker.spectrogram_frames())],
    "audio_mel": _spectrogram,
    "audio_mel_mask": lambda maker: [maker.ones(maker.spectrogram_frames()).bool()],
    "input_values": _waveform,
    "query_embeds": _queries,
    "qformer_input_ids": lambda maker: [maker.tokens()],
    "bbox": _boxes,
    "past_values": _past_values,
    "past_time_features": _time_features,
    "past_observed_mask": lambda maker: [torch.ones_like(_past_values(maker)[0])],
    "hidden_states": _patches,
    "pixel_attention_mask": lambda maker: [maker.ones(GRID[1] * GRID[2])],
    "spatial_shapes": lambda maker: [torch.tensor([GRID[1:]] * maker.sizes.batch, device="cpu")],
    "grid_thw": lambda maker: [torch.tensor([GRID], device="cpu")],
}

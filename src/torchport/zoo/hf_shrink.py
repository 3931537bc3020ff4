"""Reduces any transformers configuration to one that builds and runs in moments.

The rules depend on attribute names and on how counts and lists relate, never on the model, so that they also
apply to architectures added in the future.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchport.zoo.hf_widths import shrink_widths

if TYPE_CHECKING:
    from transformers import PretrainedConfig

LAYERS = 2
VOCABULARY = 500

# Patterns of attribute names, with the limit that their values are reduced to. The first match applies.
COUNTS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), limit)
    for pattern, limit in (
        (r"vocab_size$|^vocab_size_", VOCABULARY),
        (r"experts_per_tok|^(moe_|router_|num_)?top_?k(_experts|_group)?$|^n_group$|^moe_k$", 2),
        (r"num_experts$|n_routed_experts$|num_local_experts$|num_moe_experts$", 4),
        (r"^first_k_dense_replace$", 1),
        (r"num_queries$|num_proposals$", 10),
        (r"_shared_layers$|_predict_layers$", 0),
    )
)
DEPTHS = re.compile(r"(^|_)(n_layers?|layers|num_layer|depth|num_blocks)$")
# Lists with the number of layers of each stage.
STAGES = re.compile(
    r"^(depths|num_blocks|layers|stage_num_blocks|block_repeats|layer_depths|stage_numb_of_layers)$"
)
TOKENS = ("_token_id", "_token_index", "_token_ids")
# Values that some classes need but default to None.
MISSING = {
    "vocab_size": VOCABULARY,
    "prediction_length": 8,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "pad_token_id": 1,
    "mask_token_id": 2,
}


@dataclass(frozen=True, slots=True)
class Shrink:
    """How far to reduce a configuration.

    Args:
        depths: whether to reduce the numbers of layers.
        head: the width to reduce attention heads to, from which all widths follow; 0 keeps the widths.
        images: whether to reduce the size of images.
    """

    depths: bool
    head: int
    images: bool


# The strongest reduction first. Sizes depend on each other in ways that names do not reveal, and some code
# has constants that require a wider head: later steps keep more of the original values.
STEPS = (
    Shrink(depths=True, head=32, images=True),
    Shrink(depths=True, head=64, images=True),
    Shrink(depths=True, head=128, images=True),
    Shrink(depths=True, head=0, images=True),
    Shrink(depths=False, head=32, images=True),
    Shrink(depths=True, head=0, images=False),
    Shrink(depths=False, head=0, images=False),
)


def shrink_config(config: PretrainedConfig, shrink: Shrink) -> PretrainedConfig:
    """Return a reduced copy of `config`.

    Args:
        config: a configuration with its defaults.
        shrink: how far to reduce it.

    Returns:
        A new configuration of the same class.

    Raises:
        Exception: whatever the configuration's class raises for the reduced values.
    """
    return type(config).from_dict(_shrink_values(config, shrink))


def _shrink_values(config: PretrainedConfig, shrink: Shrink) -> dict[str, object]:
    from transformers import PretrainedConfig

    values: dict[str, object] = copy.deepcopy(config.to_dict())
    values.pop("per_layer_config", None)  # names layers by their index, which the reduced model may not have
    for key, value in values.items():
        inner = vars(config).get(key)
        if isinstance(inner, PretrainedConfig):
            values[key] = {**_shrink_values(inner, shrink), "model_type": inner.model_type}
        elif value is None and key in MISSING:
            values[key] = MISSING[key]
        elif isinstance(value, int) and not isinstance(value, bool):
            values[key] = _shrink_count(key, value)
    if shrink.depths:
        _shrink_depths(values)
    if shrink.head:
        shrink_widths(values, shrink.head)
    if shrink.images:
        _shrink_image(values)
    _move_tokens(values)
    return values


def _shrink_count(key: str, value: int) -> int:
    for pattern, limit in COUNTS:
        if pattern.search(key):
            return min(value, limit)
    return value


def _shrink_depths(values: dict[str, object]) -> None:
    """Reduce the numbers of layers, and cut the lists with one entry per layer to match."""
    for key, entries in values.items():
        if STAGES.match(key) and isinstance(entries, (list, tuple)):
            values[key] = [min(entry, LAYERS) if isinstance(entry, int) else entry for entry in entries]
    if "depths" in values or not _drop_last_stage(values):
        return  # these counts are numbers of stages, which other values depend on
    for key, count in list(values.items()):
        if isinstance(count, int) and not isinstance(count, bool) and count > LAYERS and DEPTHS.search(key):
            keep = _kept_layers(values, count)
            values[key] = len(keep)
            for other, entries in values.items():
                if isinstance(entries, (list, tuple)) and len(entries) == count:
                    values[other] = [entries[index] for index in keep]


def _drop_last_stage(values: dict[str, object]) -> bool:
    """Remove the layer indices of a backbone's output; return False if there are several outputs."""
    named = values.get("out_indices")
    if isinstance(named, (list, tuple)) and len(named) > 1:
        return False
    for key in ("out_indices", "out_features", "stage_names"):
        values.pop(key, None)
    return True


def _kept_layers(values: Mapping[str, object], count: int) -> list[int]:
    """Return the indices of the layers to keep: the first ones, or one of each kind that the model mixes."""
    for entries in values.values():
        if _mixes_kinds(entries, count):
            assert isinstance(entries, (list, tuple))
            return sorted({entries.index(kind) for kind in entries})
    return list(range(LAYERS))


def _mixes_kinds(entries: object, count: int) -> bool:
    if not isinstance(entries, (list, tuple)) or len(entries) != count:
        return False
    return all(isinstance(entry, str) for entry in entries) and 1 < len(set(entries)) < count


def _shrink_image(values: dict[str, object]) -> None:
    patch = values.get("patch_size")
    if isinstance(patch, (list, tuple)):
        patch = patch[-1]
    side = 4 * patch if isinstance(patch, int) and patch > 8 else 64
    size = values.get("image_size")
    if isinstance(size, int) and size > side:
        values["image_size"] = side
    elif isinstance(size, (list, tuple)) and all(isinstance(entry, int) and entry > side for entry in size):
        values["image_size"] = [side for _ in size]


def _move_tokens(values: dict[str, object]) -> None:
    """Move special tokens beyond the reduced vocabulary to distinct ids inside it."""
    vocabulary = values.get("vocab_size")
    inner = values.get("text_config")
    if not isinstance(vocabulary, int) and isinstance(inner, dict):
        vocabulary = inner.get("vocab_size")
    if not isinstance(vocabulary, int):
        return
    free = vocabulary - 1
    for key in sorted(values):
        value = values[key]
        if key.endswith(TOKENS) and isinstance(value, int) and value >= vocabulary:
            values[key] = free
            free -= 1
        elif key.endswith(TOKENS) and isinstance(value, (list, tuple)):
            values[key] = [min(entry, vocabulary - 1) if isinstance(entry, int) else entry for entry in value]

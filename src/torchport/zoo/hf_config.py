"""Looks up values in transformers configurations, which may be nested and use varying attribute names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def nested_configs(config: PretrainedConfig) -> Iterator[tuple[str, PretrainedConfig]]:
    """Yield the configurations nested in `config`, at every depth, each with its attribute's name."""
    from transformers import PretrainedConfig

    for key, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield key, value
            yield from nested_configs(value)


def find_value(config: PretrainedConfig, *names: str, prefer: str = "") -> object:
    """Return the first of `names` that is set in `config` or a nested configuration, or None.

    Args:
        config: the configuration.
        names: the attributes to look for, the most likely first.
        prefer: nested configurations whose attribute name contains this are searched first.
    """
    nested = list(nested_configs(config))
    preferred = [inner for key, inner in nested if prefer and prefer in key]
    for candidate in [*preferred, config, *(inner for _, inner in nested)]:
        for name in names:
            value = getattr(candidate, name, None)
            if value is not None:
                return value
    return None


def find_int(config: PretrainedConfig, *names: str, default: int, prefer: str = "") -> int:
    """Return the first of `names` that is set to an integer, or `default`. See `find_value`."""
    for name in names:
        value = find_value(config, name, prefer=prefer)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def special_tokens(config: PretrainedConfig) -> set[int]:
    """Return the ids of special tokens (padding, end, image placeholder, …)."""
    found: set[int] = set()
    for inner in [config, *(nested for _, nested in nested_configs(config))]:
        for key, value in inner.to_dict().items():
            if key.endswith(("_token_id", "_token_index", "_token_ids")):
                values = value if isinstance(value, (list, tuple)) else [value]
                found.update(item for item in values if isinstance(item, int))
    return found

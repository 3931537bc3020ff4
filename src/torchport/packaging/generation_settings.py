"""Checks the settings of `generate` in a file, since transformers checks few of them before it uses them.

A setting that it does not know becomes an attribute of its `GenerationConfig`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torchport.errors import PackageError

# Ways to generate whose loop the library looks up in a hub.
_REMOTE = ("dola_layers", "penalty_alpha", "constraints", "force_words_ids")
# Settings for calls that the library compiles or batches itself, and one that it sets itself.
_UNUSED = ("compile_config", "continuous_batching_config", "disable_compile", "is_assistant")
_INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
_LARGEST = 2**63 - 1
_LARGEST_TOKEN = 2**31 - 1
_MOST_SEQUENCES = 1 << 16
_LONGEST_NGRAM = 1 << 16  # the library loops over its tokens


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of value: what to call it in messages, and whether a value is of it."""

    text: str
    fits: Callable[[object], bool]


def _is_whole(value: object, least: int = -_LARGEST, most: int = _LARGEST) -> bool:
    return type(value) is int and least <= value <= most


def _is_number(value: object) -> bool:
    return _is_whole(value) or (type(value) is float and not math.isnan(value))


def _is_token(value: object, least: int = -_LARGEST_TOKEN) -> bool:
    return _is_whole(value, least, _LARGEST_TOKEN)  # -1 means none in some models


def _are_tokens(value: object, least: int = -_LARGEST_TOKEN) -> bool:
    return isinstance(value, list) and all(_is_token(token, least) for token in value)


def _are_words(value: object) -> bool:
    """Whether a value is a list of words, each a list of tokens."""
    return isinstance(value, list) and all(word and _are_tokens(word, 0) for word in value)


def _is_bias(value: object) -> bool:
    """Whether a value is a list of words, each with a number that is added to its score."""
    return isinstance(value, list) and all(
        isinstance(pair, list) and len(pair) == 2 and _are_words([pair[0]]) and type(pair[1]) is float
        for pair in value
    )


def _is_decay(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_whole(value[0]) and _is_number(value[1])


def _are_texts(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and bool(value) and all(isinstance(text, str) for text in value)
    )


_FLAG = _Kind("true or false", lambda value: type(value) is bool)
_NUMBER = _Kind("a number", _is_number)
_PENALTY = _Kind(
    "1, or a floating-point number above 0",  # the library refuses other integers
    lambda value: _is_number(value) and (value == 1 or (type(value) is float and value > 0)),
)
_WHOLE = _Kind("a whole number", _is_whole)
_NGRAM = _Kind(
    f"a whole number up to {_LONGEST_NGRAM:,}", lambda value: _is_whole(value, most=_LONGEST_NGRAM)
)
_COUNT = _Kind("a whole number from 1", lambda value: _is_whole(value, 1))
_SEQUENCES = _Kind(
    f"a whole number from 1 to {_MOST_SEQUENCES:,}", lambda value: _is_whole(value, 1, _MOST_SEQUENCES)
)
_TOKEN = _Kind(
    "a token or a list of tokens", lambda value: _is_token(value) or (bool(value) and _are_tokens(value))
)
_TOKENS = _Kind("a list of tokens", _are_tokens)
_TEXT = _Kind("a string", lambda value: isinstance(value, str))
_FIELDS = _Kind("an object", lambda value: isinstance(value, dict))

_NAMES_BY_KIND: Mapping[_Kind, str] = {
    _FLAG: """
        do_sample low_memory output_attentions output_hidden_states output_logits output_scores
        remove_invalid_values renormalize_logits return_dict_in_generate token_healing use_cache use_mtp
    """,
    _NUMBER: """
        assistant_confidence_threshold assistant_ensemble_weight diversity_penalty epsilon_cutoff eta_cutoff
        guidance_scale length_penalty max_time min_p num_assistant_tokens temperature top_h top_p typical_p
    """,
    _PENALTY: "repetition_penalty encoder_repetition_penalty",
    _WHOLE: """
        assistant_early_exit assistant_lookbehind max_cache_len max_length min_length min_new_tokens
        target_lookbehind top_k
    """,
    _NGRAM: "encoder_no_repeat_ngram_size no_repeat_ngram_size",
    _COUNT: "max_matching_ngram_size max_new_tokens prefill_chunk_size prompt_lookup_num_tokens",
    _SEQUENCES: "num_beams num_beam_groups num_return_sequences",
    _TOKENS: "suppress_tokens begin_suppress_tokens",
    _TEXT: "cache_implementation num_assistant_tokens_schedule speculation_type",
    _FIELDS: "cache_config watermarking_config",
}
_KINDS: Mapping[str, _Kind] = {
    **{name: kind for kind, names in _NAMES_BY_KIND.items() for name in names.split()},
    "bad_words_ids": _Kind(
        "a non-empty list of lists of tokens", lambda value: bool(value) and _are_words(value)
    ),
    "early_stopping": _Kind('true, false or "never"', lambda value: type(value) is bool or value == "never"),
    "exponential_decay_length_penalty": _Kind("a whole number and a factor", _is_decay),
    "forced_eos_token_id": _Kind(
        "a token or a list of tokens",
        lambda value: _is_token(value, 0) or (bool(value) and _are_tokens(value, 0)),
    ),
    "sequence_bias": _Kind(
        "a non-empty list of lists of tokens, each with a floating-point number",
        lambda value: bool(value) and _is_bias(value),
    ),
    "stop_strings": _Kind("a string or a list of strings", _are_texts),
}


def checked_settings(settings: Mapping[str, object], reserved: Callable[[str], bool]) -> dict[str, object]:
    """Return the settings of `generate` in a file, each of which is checked; those that are off are left out.

    Args:
        settings: the settings by name.
        reserved: whether a name is something else of the library's, which a setting would replace.

    Raises:
        PackageError: a setting is of another type than the library needs, would make it load code from a hub
            or take memory without bounds, or has a reserved name.
    """
    checked = {}
    for name, written in settings.items():
        value = _with_infinities(written)
        if value is None or name in _UNUSED or (name in _REMOTE and not value):
            continue
        kind = _KINDS.get(name) or (_TOKEN if name.endswith("_token_id") else None)
        if name in _REMOTE:
            raise _refusal(f"{name!r}, for which the library loads code from a hub")
        if kind is not None and not kind.fits(value):
            raise _refusal(f"the {name} {str(value)[:80]!r}, which is not {kind.text}")
        if kind is None and reserved(name):
            raise _refusal(f"{name[:80]!r}, which is not a setting")
        checked[name] = value
    return checked


def _with_infinities(value: object) -> object:
    """Return a value of a record, which has infinite numbers as strings, with these as numbers."""
    if isinstance(value, list):
        return [_with_infinities(item) for item in value]
    return _INFINITIES.get(value, value) if isinstance(value, str) else value


def _refusal(what: str) -> PackageError:
    return PackageError(
        f"its generation_config has {what}",
        remedy="change model.generation_config and save the model again, or use prefill and step",
    )

"""Generates with encoder-decoder models: the encoder runs once; each decoder step attends to its output."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput

from torchport.errors import RuntimeRefusal
from torchport.generation.cache_form import CacheForm, find_cache_form
from torchport.generation.call_sizes import CallSizes
from torchport.generation.generation import Generation
from torchport.generation.model_inputs import (
    MASK,
    piece_per_token,
    refuse_empty_sequences,
    unsupported_argument,
)
from torchport.generation.past_cache import PastCache
from torchport.generation.pieces import SlotNumbers, check_room
from torchport.generation.shells import decoder_call, encoder_call, method_like, shell_of
from torchport.generation.slot_cache import CrossCache, SlotCache, cut_attentions
from torchport.records import MaskSpec

_DECODER_MASK = "decoder_attention_mask"
_PER_TOKEN = ("decoder_position_ids",)


class _Encoded:
    """The encoder's output and the cross-attention keys and values, for the decoder in one `generate`."""

    def __init__(self, hidden: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        self.hidden, self.keys, self.values = hidden, keys, values

    def repeats_in(self, hidden: torch.Tensor) -> int:
        """Return how many times `hidden` repeats each sequence of this output; 0 if it is another output."""
        repeats, rest = divmod(hidden.shape[0], self.hidden.shape[0])
        if rest or not torch.equal(hidden, self.hidden.repeat_interleave(repeats, 0)):
            return 0
        return repeats


class EncoderDecoderGeneration(Generation):
    """Generates with a compiled encoder and a compiled decoder step.

    Tokens for the encoder are padded to `max_length`, so that one program serves all prompts. Other inputs,
    such as audio, keep their shape.
    """

    def _compile(self) -> list[Any]:
        self._encoded = threading.local()  # each generating thread has its own encoder output
        self._pads = self._model.main_input_name == "input_ids"
        self._hidden_width = 0
        self._encoder_length = min([self._max_length, *_limits(self._model)])
        self._is_open = False  # the decoder takes one token at a time
        self._numbers = SlotNumbers(self._max_length)
        modules = encoder_call(self._model), decoder_call(self._model)
        return [self._compile_call(module, CallSizes()) for module in modules]

    def _generate(self, loop: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        try:
            return super()._generate(loop, args, kwargs)
        finally:
            self._encoded.last = None  # must not leak into the next generate

    def _methods(self) -> dict[str, Any]:
        encoder = self._model.get_encoder()
        run = method_like(type(encoder).forward, self._encode)
        return {
            **super()._methods(),
            "get_encoder": lambda _, *args, **kwargs: shell_of(encoder, {"forward": run}),
        }

    @torch.no_grad()
    def _encode(self, *args: Any, **given: Any) -> Any:
        """Run the encoder, and keep its output and the cross-attention keys and values for the decoder."""
        self._encoded.last = None
        name = self._model.main_input_name
        if args:
            given = {name: args[0], **given}
        unknown = unsupported_argument(given, name, MASK)
        if unknown or len(args) > 1 or name not in given:
            encoder = self._model.get_encoder()
            return self._eagerly(
                f"generate passes {unknown or 'no prompt'} to the encoder",
                lambda: type(encoder).forward(encoder, *args[1:], **given),
            )
        inputs = {name: given[name]}
        length = given[name].shape[1]
        if self._pads:
            inputs = self._padded(given[name], given.get(MASK))
        elif given.get(MASK) is not None:
            inputs[MASK] = given[MASK]
        hidden, keys, values = self.calls[0](inputs)
        if self._pads:
            hidden = hidden[:, :length]
        self._encoded.last = _Encoded(hidden, keys, values)
        return BaseModelOutput(last_hidden_state=hidden)

    def _padded(self, ids: torch.Tensor, mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
        batch, length = ids.shape
        if length > self._encoder_length:
            raise RuntimeRefusal(
                f"the prompt has {length} tokens, and the encoder was compiled for {self._encoder_length}",
                where=self._name,
                remedy=f"compile it with max_length={length}, if the model itself supports that length",
            )
        refuse_empty_sequences(mask, self._name)
        whole = ids.new_zeros(batch, self._encoder_length)
        whole[:, :length] = ids
        return {"input_ids": whole, MASK: _pad_mask(mask, batch, length, self._encoder_length, ids.device)}

    def _cache_for(self, batch: int, model_kwargs: Mapping[str, Any]) -> Cache:
        encoded = getattr(self._encoded, "last", None)
        hidden = model_kwargs["encoder_outputs"][0]
        self._hidden_width = hidden.shape[-1]
        repeats = 0 if encoded is None else encoded.repeats_in(hidden)
        if encoded is None or not repeats:
            return CrossCache(self.new_cache(batch))
        keys, values = encoded.keys, encoded.values
        if repeats > 1:
            keys = [key.repeat_interleave(repeats, 0) for key in keys]
            values = [value.repeat_interleave(repeats, 0) for value in values]
        return CrossCache(self.new_cache(batch), keys, values)

    def _check_cache(self, cache: object, batch: int) -> None:
        super()._check_cache(cache.self_attention_cache if isinstance(cache, CrossCache) else cache, batch)

    @property
    def prompt_example(self) -> int:
        """How many tokens a prompt needs for everything that `generate` needs to be compiled."""
        return 2

    def _find_form(self) -> CacheForm:
        # A decoder may be non-causal: only calls of several tokens fall back to eager torch; most have one.
        return find_cache_form(self._run_tokens, self._model.config, self._name)

    def _run_tokens(self, ids: torch.Tensor, cache: DynamicCache) -> None:
        seen = BaseModelOutput(last_hidden_state=self._hidden(1))
        self._forward(
            self._model,
            decoder_input_ids=ids.to(self._device),
            encoder_outputs=seen,
            past_key_values=CrossCache(cache),
            use_cache=True,
        )

    def _hidden(self, length: int) -> torch.Tensor:
        """Return an all-zero encoder output of the encoder's hidden width."""
        config = self._model.config
        width = self._hidden_width or getattr(config, "hidden_size", None) or config.d_model
        return torch.zeros(1, length, width, dtype=self._model.dtype, device=self._device)

    def _describe_masks(self) -> tuple[dict[str, MaskSpec], str]:
        return {}, "it has an encoder"

    def _loses_padding(self, mask: object) -> bool:
        return False  # a decoder with recurrent states is refused

    def _prepare_one_mask(self) -> object:
        one = torch.ones(1, 1, dtype=torch.long, device=self._device)
        prepared = self._loop().prepare_inputs_for_generation(
            one, past_key_values=CrossCache(self.new_cache(1)), decoder_attention_mask=one, use_cache=True
        )
        return prepared.get(_DECODER_MASK)

    @torch.no_grad()
    def forward(  # type: ignore[override]  # called as the model's own is
        self,
        decoder_input_ids: torch.Tensor | None = None,
        past_key_values: CrossCache | None = None,
        encoder_outputs: Any = None,
        attention_mask: torch.Tensor | None = None,
        logits_to_keep: int = 0,
        **given: Any,
    ) -> Any:
        """Run the tokens through the decoder, one at a time, and write their keys and values to the cache."""
        why = self._why_eagerly(decoder_input_ids, past_key_values, logits_to_keep, given)
        if why or decoder_input_ids is None:
            wanted = {"logits_to_keep": logits_to_keep} if self._keeps else {}
            return self._eagerly(
                why,
                lambda: self._decode_eagerly(
                    decoder_input_ids, past_key_values, encoder_outputs, attention_mask, {**given, **wanted}
                ),
            )
        assert past_key_values is not None
        own: SlotCache = past_key_values.self_attention_cache
        start, count = own.get_seq_length(), decoder_input_ids.shape[1]
        check_room(own, start + count, self._name)
        batch = decoder_input_ids.shape[0]
        seen = None
        if self._pads:
            # Keys and values of an encoder output that was passed in are not padded.
            padded = past_key_values.cross[0][0].shape[2]
            seen = _pad_mask(attention_mask, batch, encoder_outputs[0].shape[1], padded, own.device)
        elif attention_mask is not None:
            seen = attention_mask
        logits = []
        for place in range(count):
            inputs: dict[str, object] = {
                key: piece_per_token(given[key], batch, place, 1, 1)
                for key in _PER_TOKEN
                if given.get(key) is not None
            }
            inputs[_DECODER_MASK] = self._mask_form(own.slots).piece(
                given.get(_DECODER_MASK), batch, start, place, 1, 1
            )
            if seen is not None:
                inputs[MASK] = seen
            row, keys, values = self.calls[1](
                decoder_input_ids[:, place : place + 1].contiguous(),
                inputs,
                torch.tensor(start + place, device=own.device),
                own.buffers,
                past_key_values.cross,
                self._hidden(1)[0, 0],
            )
            own.write((keys, values), start + place, 1)
            logits.append(row)
        joined = logits[0] if count == 1 else torch.cat(logits, 1)
        return Seq2SeqLMOutput(logits=joined[:, -logits_to_keep:], past_key_values=past_key_values)

    def _why_eagerly(
        self, ids: torch.Tensor | None, cache: object, logits_to_keep: int, given: Mapping[str, Any]
    ) -> str:
        if name := unsupported_argument(given, _DECODER_MASK, *_PER_TOKEN):
            return f"generate passes {name}"
        if ids is None or not isinstance(cache, CrossCache) or not cache.is_updated:
            return "generate has no tokens or cache, or an encoder output that is not the compiled encoder's"
        if ids.shape[1] > 1 and not self._cache_form().is_causal:
            return "the decoder is not causal, and the call has several tokens"
        return ""

    def _decode_eagerly(
        self,
        ids: torch.Tensor | None,
        cache: Cache | None,
        encoder_outputs: Any,
        attention_mask: torch.Tensor | None,
        given: Mapping[str, Any],
    ) -> Any:
        arguments = {
            "decoder_input_ids": ids,
            "encoder_outputs": encoder_outputs,
            MASK: attention_mask,
            **given,
        }
        if not isinstance(cache, CrossCache):
            return self._forward(self._model, past_key_values=cache, **arguments)
        if ids is None:
            raise RuntimeRefusal("the decoder was given no tokens", where=self._name)
        own: SlotCache = cache.self_attention_cache
        start = own.get_seq_length()
        check_room(own, start + ids.shape[1], self._name)
        keys, values = own.buffers
        past = PastCache(keys, values, torch.tensor(start, device=own.device))
        seen = CrossCache(past, *cache.cross)
        if self._pads and cache.is_updated:  # the cross-attention keys and values may be padded
            padded = cache.cross[0][0].shape[2]
            hidden = encoder_outputs[0]
            arguments[MASK] = _pad_mask(attention_mask, ids.shape[0], hidden.shape[1], padded, own.device)
            missing = padded - hidden.shape[1]
            arguments["encoder_outputs"] = BaseModelOutput(
                torch.nn.functional.pad(hidden, (0, 0, 0, missing))
            )
        output = self._forward(self._model, past_key_values=seen, **arguments)
        own.write(past.new, start, ids.shape[1])
        cut_attentions(output, own)
        if not cache.is_updated:
            cache.share_cross_attention(seen)
        output.past_key_values = cache
        return output


def _pad_mask(
    mask: torch.Tensor | None, batch: int, length: int, padded: int, device: torch.device
) -> torch.Tensor:
    """Return the mask of `length` tokens, padded to `padded`."""
    present = torch.zeros(batch, padded, dtype=torch.long, device=device)
    present[:, :length] = 1 if mask is None else mask
    return present


def _limits(model: Any) -> list[int]:
    """Return the limits on an encoder's number of tokens that configurations give."""
    configs = (model.config, getattr(model.get_encoder(), "config", None))
    names = ("max_position_embeddings", "max_encoder_position_embeddings")
    found = [getattr(config, name, None) for config in configs for name in names]
    return [limit for limit in found if isinstance(limit, int)]

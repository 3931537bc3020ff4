"""The library's own loop, with compiled calls in the place of the model's."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from torchport.capture import buffers_kept
from torchport.errors import CompileError, RuntimeRefusal
from torchport.generation.model_inputs import MASK, PER_TOKEN, MaskForm
from torchport.generation.open_width import FixedWidth
from torchport.generation.pieces import Pieces, check_room
from torchport.generation.plain_masks import describe_masks
from torchport.generation.shells import cached_call, keeps_logits, shell_of
from torchport.generation.slot_cache import PastCache, SlotCache
from torchport.records import GenerationForm, MaskSpec
from torchport.runtime.eager_fallback import EagerFallback

# Tokens of a prompt that one call takes. On a CPU, about as many as are computed in the time that reading the
# weights takes.
WIDTH = 32
# Prompt and new tokens together, unless the caller says otherwise: every step looks at this many slots.
MAX_LENGTH = 512

# The library's method that makes the cache of a `generate`.
_PREPARE_CACHE = "_prepare_cache_for_generation"
_CACHES_TAKEN = (None, "static", "dynamic")
# Arguments that say nothing new to a compiled call.
_PASSED_OVER = ("use_cache", "return_dict", "cache_position")
# Compiles a module; for all numbers of tokens up to the given one, unless that is 0.
Compile = Callable[[nn.Module, int], Any]

_log = logging.getLogger(__name__)


class Generation:
    """Generates with compiled calls.

    Args:
        model: the model, one of transformers'.
        compile_call: compiles a module for whatever inputs it is called with; for all numbers of tokens, if
            it is given how many they are at most.
        max_length: how many tokens a sequence may have, prompt and new ones together.
        name: the model's name in messages.
        open_width: whether one program is wanted for all numbers of tokens.
        form: of a model from a file, which has no weights: the form of its cache, which is otherwise found by
            a run of the model.
    """

    def __init__(
        self,
        model: Any,
        compile_call: Compile,
        *,
        max_length: int,
        name: str,
        open_width: bool = False,
        form: GenerationForm | None = None,
    ) -> None:
        self._model = model
        self._name = name
        self._lock = threading.Lock()
        self._shapes: list[tuple[int, int, int]] | None = None if form is None else list(form.layers)
        self._dtype: torch.dtype = torch.float32 if form is None else getattr(torch, form.dtype)
        self._has_weights = form is None
        self._keeps = keeps_logits(model)
        self._max_length = max_length
        self._width = min(WIDTH, max_length) if form is None else form.width
        self._masks: MaskForm | None = None
        self._fallback = EagerFallback(name)
        self._compile_call = compile_call
        self._is_open = open_width and self._width > 1
        self.calls = self._compile()

    def _compile(self) -> list[Any]:
        """Return the calls that are compiled."""
        width = self._width if self._is_open else 0
        return [self._compile_call(cached_call(self._model, width), width)]

    @property
    def fallbacks(self) -> EagerFallback:
        """Counts the calls that eager torch ran, since nothing is compiled for their arguments."""
        return self._fallback

    def generate(self, inputs: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """Generate as the model itself does; see transformers' documentation of `generate`.

        Raises:
            RuntimeRefusal: the prompt is empty or too long, or the cache is not one of this model's.
        """
        return self._generate(self._loop(), inputs, kwargs)

    def generate_eagerly(self, inputs: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """Generate with the model's own calls, within the same limits.

        Raises:
            RuntimeRefusal: the prompt is empty or too long.
        """
        prepare = getattr(type(self._model), _PREPARE_CACHE)

        def prepare_cache(shell: Any, *given: Any) -> None:
            self._check_length(int(given[-1]))
            prepare(shell, *given)

        loop = shell_of(self._model, {_PREPARE_CACHE: prepare_cache})
        return self._generate(loop, inputs, kwargs)

    def _generate(self, loop: Any, inputs: torch.Tensor | None, kwargs: dict[str, Any]) -> Any:
        given = inputs if inputs is not None else kwargs.get("input_ids")
        if isinstance(given, torch.Tensor) and given.dim() == 2 and not given.numel():
            raise RuntimeRefusal(
                "the prompt is empty",
                where=self._name,
                remedy="give one token at least, such as the first one's",
            )
        first = () if inputs is None else (inputs,)  # whose name differs: Whisper's is input_features
        return loop.generate(*first, **kwargs)

    def _loop(self) -> Any:
        """Return what the library generates with: the model, its forward and its cache the compiled ones."""
        return shell_of(self._model, self._methods())

    def _eagerly(self, why: str, run: Callable[[], Any]) -> Any:
        """Run a call with eager torch, since nothing is compiled for it, and why.

        Raises:
            RuntimeRefusal: the model is from a file, and has no weights.
        """
        if not self._has_weights:
            raise RuntimeRefusal(
                f"{why}, and a model from a file can only do what it was compiled for",
                where=self._name,
                remedy="generate with the compiled model, or with the model itself",
            )
        return self._fallback.run_eagerly(why, run)

    def _methods(self) -> dict[str, Any]:
        made = {
            "forward": like(type(self._model).forward, self.forward),
            _PREPARE_CACHE: lambda _, *given: self._prepare_cache(*given),
            "_valid_auto_compile_criteria": lambda _, *args, **kwargs: False,
        }
        without_weights = {"device": property(lambda _: torch.device("cpu"))}  # they are nowhere
        return made if self._has_weights else made | without_weights

    def _prepare_cache(self, config: Any, model_kwargs: dict[str, Any], *args: Any) -> None:
        """Give the library's loop a cache of ours."""
        if config.cache_implementation not in _CACHES_TAKEN:
            raise RuntimeRefusal(
                f"a cache of the kind {config.cache_implementation!r} is not one that the compiled model has",
                where=self._name,
                remedy="leave cache_implementation out",
            )
        self._check_length(int(args[-1]))
        given = model_kwargs.get("past_key_values")
        if given is None:
            if config.use_cache is False:
                return
            batch = args[-2] * max(config.num_beams, config.num_return_sequences)
            model_kwargs["past_key_values"] = self._cache_for(batch, model_kwargs)
        else:
            self._check_cache(given)
            given._is_user_defined = True

    def _check_length(self, length: int) -> None:
        if length > self._max_length:
            raise RuntimeRefusal(
                f"the prompt and the new tokens are {length + 1}, and the model was compiled for "
                f"{self._max_length} at most",
                where=self._name,
                remedy=f"ask for fewer with max_new_tokens, or compile it with max_length={length + 1}",
            )

    def _cache_for(self, batch: int, model_kwargs: Mapping[str, Any]) -> Cache:
        return self.new_cache(batch)

    def _check_cache(self, cache: object) -> None:
        if not isinstance(cache, SlotCache) or cache.slots != self._max_length:
            raise RuntimeRefusal(
                f"a {type(cache).__name__} is not a cache of this compiled model",
                where=self._name,
                remedy="leave past_key_values out, or pass the one that an earlier generate of it returned",
            )

    def new_cache(self, batch: int) -> SlotCache:
        """Return an empty cache for a number of sequences."""
        with self._lock:
            if self._shapes is None:
                self._shapes = self._look()
        return SlotCache(self._shapes, batch, self._max_length, self._dtype)

    def _look(self) -> list[tuple[int, int, int]]:
        """Run the model on one token, to see what it keeps."""
        cache = DynamicCache(config=self._model.config.get_text_config(decoder=True))
        with buffers_kept(self._model), torch.no_grad():
            self._run_one_token(cache)
        odd = [
            layer for layer in cache.layers if type(layer) not in (DynamicLayer, DynamicSlidingWindowLayer)
        ]
        if odd or not cache.layers:
            kind = type(odd[0]).__name__ if odd else "no layer"
            raise CompileError(
                f"the model keeps more than keys and values from step to step ({kind})",
                where=self._name,
                remedy="generate with the model itself",
            )
        layers = [layer for layer in cache.layers if layer.is_initialized]
        self._dtype = layers[0].keys.dtype
        return [(layer.keys.shape[1], layer.keys.shape[3], layer.values.shape[3]) for layer in layers]

    def _run_one_token(self, cache: DynamicCache) -> None:
        one = torch.ones(1, 1, dtype=torch.long)
        type(self._model).forward(self._model, input_ids=one, past_key_values=cache, use_cache=True)

    def _mask_form(self) -> MaskForm:
        """Return how the library prepares masks for this model, by asking it once."""
        if self._masks is None:
            cache = self.new_cache(1)
            one = torch.ones(1, 1, dtype=torch.long)
            prepared = self._loop().prepare_inputs_for_generation(
                one, past_key_values=cache, attention_mask=one, position_ids=one - 1, use_cache=True
            )
            self._masks = MaskForm(prepared.get(MASK), self._max_length)
        return self._masks

    def describe(self, positions: bool) -> GenerationForm:
        """Return how the compiled calls are called, for who has them without the model.

        Args:
            positions: whether they take the tokens' positions.
        """
        self.new_cache(1)
        masks, problem = self._describe_masks()
        return GenerationForm(
            max_length=self._max_length,
            width=self._width,
            layers=tuple(self._shapes or ()),
            dtype=str(self._dtype).removeprefix("torch."),
            keeps_logits=self._keeps,
            masks=masks,
            positions=positions,
            library_only=problem,
            open_width=self._is_open,
        )

    def _describe_masks(self) -> tuple[dict[str, MaskSpec], str]:
        return describe_masks(self._prepared_mask, self._max_length)

    def _prepared_mask(self, length: int) -> object:
        """Return the mask that the library prepares for the last of so many tokens."""
        cache = self.new_cache(1)
        cache.forget_all_but(length - 1)
        ids = torch.ones(1, length, dtype=torch.long)
        prepared = self._loop().prepare_inputs_for_generation(
            ids,
            next_sequence_length=1,
            past_key_values=cache,
            attention_mask=ids,
            position_ids=torch.tensor([[length - 1]]),
            use_cache=True,
        )
        return prepared.get(MASK)

    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        past_key_values: SlotCache | None = None,
        logits_to_keep: int = 0,
        **given: Any,
    ) -> Any:
        """Run the tokens through compiled calls, and note their keys and values in the cache."""
        if past_key_values is not None:
            self._check_cache(past_key_values)
        unusual = [
            key
            for key, value in given.items()
            if value is not None and value is not False and key not in (MASK, *PER_TOKEN, *_PASSED_OVER)
        ]
        if input_ids is None or past_key_values is None or unusual:
            why = (
                f"generate passes {unusual[0]}"
                if unusual
                else "generate works without a cache or without tokens"
            )
            return self._eagerly(
                why, lambda: self._run_eagerly(input_ids, past_key_values, logits_to_keep, given)
            )
        start, count = past_key_values.get_seq_length(), input_ids.shape[1]
        check_room(past_key_values, start + count, self._name)
        run = functools.partial(
            self._run_pieces, input_ids, past_key_values, start, given, logits_to_keep or count
        )
        try:
            logits = run()
        except FixedWidth as error:
            self._compile_for_fixed_widths(error)
            logits = run()
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)

    def _run_pieces(
        self, ids: torch.Tensor, cache: SlotCache, start: int, given: Mapping[str, Any], wanted: int
    ) -> torch.Tensor:
        with self._lock:  # another thread may have both replaced
            call, is_open = self.calls[0], self._is_open
        pieces = Pieces(call, self._width, self._keeps, self._name, is_open=is_open)
        return pieces.run(ids, cache, start, given, wanted, self._mask_form())

    def _compile_for_fixed_widths(self, why: FixedWidth) -> None:
        """Have two programs from now on: for pieces of a prompt, and for steps."""
        with self._lock:
            if self._is_open:
                _log.info("%s: pieces of prompts and steps have a program each: %s", self._name, why)
                self._is_open = False
                self.calls = self._compile()

    def _run_eagerly(
        self, ids: torch.Tensor | None, cache: SlotCache | None, logits_to_keep: int, given: Mapping[str, Any]
    ) -> Any:
        arguments = dict(given)
        if self._keeps:
            arguments["logits_to_keep"] = logits_to_keep
        if ids is not None:
            arguments["input_ids"] = ids
        run = functools.partial(type(self._model).forward, self._model)
        if cache is None:
            return run(**arguments)
        start = cache.get_seq_length()
        tokens = ids if ids is not None else arguments["inputs_embeds"]
        check_room(cache, start + tokens.shape[1], self._name)
        past = PastCache(*cache.buffers, torch.tensor(start))
        output = run(past_key_values=past, **arguments)
        cache.write(past.new, start, tokens.shape[1])
        output.past_key_values = cache
        return output


def like(original: Callable[..., object], function: Callable[..., object]) -> Callable[..., object]:
    """Return a method that calls a function, with the signature of another: the library asks for it."""

    @functools.wraps(original)
    def method(_: object, *args: Any, **kwargs: Any) -> object:
        return function(*args, **kwargs)

    return method

"""Runs transformers' own `generate` loop with compiled calls in place of the model's."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch
from torch import nn
from transformers.cache_utils import Cache
from transformers.modeling_outputs import CausalLMOutputWithPast

from torchport.capture import buffers_kept
from torchport.errors import CompileError, RuntimeRefusal
from torchport.generation.cache_form import CacheForm, find_cache_form, form_from_file
from torchport.generation.call_sizes import CallSizes, FixedSizes
from torchport.generation.model_inputs import (
    MASK,
    PER_TOKEN,
    MaskForm,
    check_mask,
    empty_sequences,
    refuse_empty_sequences,
    unsupported_argument,
)
from torchport.generation.past_cache import PastCache
from torchport.generation.pieces import Pieces, SlotNumbers, check_room
from torchport.generation.plain_masks import describe_masks
from torchport.generation.prepared_masks import first_mask, last_mask
from torchport.generation.recurrent_states import Layout
from torchport.generation.shells import cached_call, forward_of, keeps_logits, method_like, shell_of
from torchport.generation.slot_cache import SlotCache, cut_attentions
from torchport.generation.switched_positions import is_switched, switching_lengths
from torchport.records import GenerationForm, MaskSpec
from torchport.runtime.eager_fallback import EagerFallback
from torchport.runtime.input_kind import autocast_key

# Prompt tokens per call. On a CPU, about as many as can be computed in the time it takes to read the weights.
WIDTH = 32
# Default limit on prompt and new tokens together. Caches that cannot grow have this many slots, and every
# step attends over all of them.
MAX_LENGTH = 512

# The method of transformers that creates the cache for a `generate`.
_PREPARE_CACHE = "_prepare_cache_for_generation"
_CACHES_TAKEN = (None, "static", "dynamic")
# Compiles a module for the given open sizes.
Compile = Callable[[nn.Module, CallSizes], Any]

_log = logging.getLogger(__name__)


class Generation:
    """Generates with compiled calls.

    Args:
        model: a transformers model.
        compile_call: compiles a module for the inputs it is called with, and for all sizes that may vary.
        max_length: the maximum number of tokens in a sequence, prompt and new tokens together.
        name: the model's name in messages.
        open_sizes: whether to use one program for any number of tokens, and caches that grow.
        form: the form of the cache, for a model loaded from a file, which has no weights; otherwise found by
            running the model.
    """

    def __init__(
        self,
        model: Any,
        compile_call: Compile,
        *,
        max_length: int,
        name: str,
        open_sizes: bool = False,
        form: GenerationForm | None = None,
    ) -> None:
        self._model = model
        self._name = name
        self._forward = forward_of(model)
        self._lock = threading.Lock()
        self._form = None if form is None else form_from_file(form)
        self._forms: dict[object, CacheForm] = {}
        self._layout: Layout | None = None if self._form is None else self._form.layout
        self._switches = switching_lengths(model)
        self._has_weights = form is None
        self._keeps = keeps_logits(model)
        self._max_length = max_length
        self._width = min(WIDTH, max_length) if form is None else form.width
        self._masks: dict[torch.dtype, object] = {}
        self._fallback = EagerFallback(name)
        self._compile_call = compile_call
        self._is_open = open_sizes and self._width > 1 if form is None else form.open_width
        grow = self._is_open if form is None else form.open_slots
        self._numbers = SlotNumbers.open(max_length) if grow else SlotNumbers(max_length)
        self.calls = self._compile()

    def _compile(self) -> list[Any]:
        """Return the compiled calls."""
        slots = self._max_length if self._numbers.grow else 0
        sizes = CallSizes(self._width, slots, self._numbers.for_tokens(1)) if self._is_open else CallSizes()
        most = self._max_length if self._is_open else 0
        return [self._compile_call(cached_call(self._model, most, lambda: self._layout), sizes)]

    @property
    def fallbacks(self) -> EagerFallback:
        """Counts the calls that fell back to eager torch because nothing is compiled for their arguments."""
        return self._fallback

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as the model itself does; see transformers' documentation of `generate`.

        Raises:
            RuntimeRefusal: the prompt is empty or too long, its mask does not fit it, or the cache was not
                made by this model.
        """
        if kwargs.get("cache_implementation") == "paged":  # another loop of transformers, with its own cache
            self._refuse_cache("paged")
        check_mask(kwargs.get(MASK), _prompt_of(args, kwargs), self._model.config, self._name)
        return self._generate(self._loop(), args, kwargs)

    def generate_eagerly(self, *args: Any, **kwargs: Any) -> Any:
        """Generate with the model's own calls, within the same limits.

        Raises:
            RuntimeRefusal: the prompt is empty or too long.
        """
        prepare = getattr(type(self._model), _PREPARE_CACHE)

        def prepare_cache(shell: Any, *given: Any) -> None:
            self._check_length(int(given[-1]))
            prepare(shell, *given)

        loop = shell_of(self._model, {_PREPARE_CACHE: prepare_cache})
        return self._generate(loop, args, kwargs)

    def _generate(self, loop: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = _prompt_of(args, kwargs)
        if isinstance(given, torch.Tensor) and given.dim() == 2 and not given.numel():
            raise RuntimeRefusal(
                "the prompt is empty",
                where=self._name,
                remedy="pass at least one token, such as the beginning-of-sequence token",
            )
        return loop.generate(*args, **kwargs)

    def _loop(self) -> Any:
        """Return the object that transformers generates with: the model, with compiled forward and cache."""
        return shell_of(self._model, self._methods())

    def _eagerly(self, why: str, run: Callable[[], Any]) -> Any:
        """Run a call for which nothing is compiled with eager torch, and record why.

        Raises:
            RuntimeRefusal: the model was loaded from a file and has no weights.
        """
        if not self._has_weights:
            raise RuntimeRefusal(
                f"{why}, and a model loaded from a file can only run what it was compiled for",
                where=self._name,
                remedy="generate with the compiled model it was saved from, or with the original model",
            )
        return self._fallback.run_eagerly(why, run)

    def _methods(self) -> dict[str, Any]:
        made = {
            "forward": method_like(self._forward, self.forward),
            _PREPARE_CACHE: lambda loop, *given: self._prepare_cache(loop, *given),
            "_valid_auto_compile_criteria": lambda _, *args, **kwargs: False,
        }
        without_weights = {"device": property(lambda _: torch.device("cpu"))}  # no weights to tell the device
        return made if self._has_weights else made | without_weights

    def _prepare_cache(self, loop: Any, config: Any, model_kwargs: dict[str, Any], *args: Any) -> None:
        """Give transformers' loop one of our caches, or its own if eager torch has to run the model."""
        if config.cache_implementation not in _CACHES_TAKEN:
            self._refuse_cache(config.cache_implementation)
        self._check_length(int(args[-1]))
        given = model_kwargs.get("past_key_values")
        batch = args[-2] * max(config.num_beams, config.num_return_sequences)
        if given is None:
            if config.use_cache is False:
                return
            if empty_sequences(model_kwargs.get(MASK)) or self._loses_padding(model_kwargs.get(MASK)):
                getattr(type(self._model), _PREPARE_CACHE)(loop, config, model_kwargs, *args)
                return
            model_kwargs["past_key_values"] = self._cache_for(batch, model_kwargs)
        else:
            self._check_cache(given, batch)
            refuse_empty_sequences(model_kwargs.get(MASK), self._name)
            if self._loses_padding(model_kwargs.get(MASK)):
                raise RuntimeRefusal(
                    "the model's recurrent states would take in the tokens that the attention mask hides",
                    where=self._name,
                    remedy="leave past_key_values out, or pass tokens without padding",
                )
            given._is_user_defined = True

    def _refuse_cache(self, implementation: object) -> NoReturn:
        raise RuntimeRefusal(
            f"the compiled model does not support cache_implementation={implementation!r}",
            where=self._name,
            remedy="leave cache_implementation out",
        )

    def _check_length(self, length: int) -> None:
        if length > self._max_length:
            raise RuntimeRefusal(
                f"the prompt and the new tokens add up to {length + 1}, and the model was compiled for "
                f"{self._max_length} at most",
                where=self._name,
                remedy=f"ask for fewer with max_new_tokens, or compile it with max_length={length + 1}",
            )

    def _cache_for(self, batch: int, model_kwargs: Mapping[str, Any]) -> Cache:
        return self.new_cache(batch)

    def _check_cache(self, cache: object, batch: int) -> None:
        """Refuse a cache that this model did not make, or that holds another number of sequences."""
        if not self._is_own(cache):
            raise RuntimeRefusal(
                f"a {type(cache).__name__} is not a cache of this compiled model",
                where=self._name,
                remedy="leave past_key_values out, or pass the one that an earlier generate returned",
            )
        assert isinstance(cache, SlotCache)
        if cache.batch != batch:
            raise RuntimeRefusal(
                f"the cache holds {cache.batch} sequences, but {batch} were given",
                where=self._name,
                remedy="pass the cache of an earlier generate with as many sequences and beams",
            )

    def _is_own(self, cache: object) -> bool:
        """Whether a cache fits this model."""
        if not isinstance(cache, SlotCache) or cache.numbers.most != self._max_length:
            return False
        form = self._cache_form()
        return (cache.shapes, cache.layout) == (
            list(form.shapes),
            form.layout,
        ) and cache.device == self._device

    def new_cache(self, batch: int) -> SlotCache:
        """Return an empty cache for a number of sequences."""
        form = self._cache_form()
        return SlotCache(form.shapes, batch, self._numbers, form.dtype, self._device, form.layout)

    @property
    def prompt_example(self) -> int:
        """How many tokens a prompt needs for everything that `generate` needs to be compiled.

        Two, unless only whole pieces are run as pieces; then as many as fit before a step.
        """
        return 2 if self._cache_form().layout is None else min(self._width, self._max_length - 2)

    @property
    def _device(self) -> torch.device:
        """The model's device; the CPU for a model loaded from a file, which has no weights."""
        device: torch.device = self._model.device if self._has_weights else torch.device("cpu")
        return device

    def _cache_form(self) -> CacheForm:
        """Return the form of the model's cache for its current dtype, which may have changed."""
        if self._form is not None:
            return self._form
        key = self._model.dtype, autocast_key()
        with self._lock:
            if key not in self._forms:
                with buffers_kept(self._model), torch.no_grad():
                    self._forms[key] = self._find_form()
                self._layout = self._forms[key].layout
            return self._forms[key]

    def _find_form(self) -> CacheForm:
        """Run the model on a few tokens to find the form of its cache."""
        form = find_cache_form(
            self._run_tokens, self._model.config, self._name, may_hold_states=True, device=self._device
        )
        if not form.is_causal:
            raise CompileError(
                "what the model caches for a token depends on the tokens after it, so a prompt cannot be "
                "run in pieces",
                where=self._name,
                remedy="generate with the model itself",
            )
        return form

    def _run_tokens(self, ids: torch.Tensor, cache: Cache) -> None:
        self._forward(self._model, input_ids=ids.to(self._device), past_key_values=cache, use_cache=True)

    def _mask_form(self, slots: int) -> MaskForm:
        """Return how transformers prepares masks for this model; asks it once for each dtype."""
        dtype = self._model.dtype
        if dtype not in self._masks:
            self._masks[dtype] = self._prepare_one_mask()
        has_states = self._cache_form().layout is not None
        return MaskForm(self._masks[dtype], slots, self._device, has_states=has_states)

    def _prepare_one_mask(self) -> object:
        return first_mask(self._loop(), self.new_cache(1))

    def _loses_padding(self, mask: object) -> bool:
        """Whether recurrent states would take in padding, since the prepared masks do not show it."""
        if self._cache_form().layout is None or not isinstance(mask, torch.Tensor) or mask.bool().all():
            return False
        return not self._mask_form(0).marks_tokens

    def describe(self, positions: bool) -> GenerationForm:
        """Describe how to call the compiled calls without the model.

        Args:
            positions: whether the calls take the tokens' positions.
        """
        cache = self._cache_form()
        masks, problem = self._describe_masks()
        return GenerationForm(
            max_length=self._max_length,
            width=self._width,
            layers=tuple(cache.shapes),
            dtype=str(cache.dtype).removeprefix("torch."),
            keeps_logits=self._keeps,
            masks=masks,
            positions=positions,
            library_only=problem,
            open_width=self._is_open,
            open_slots=self._numbers.grow,
            states=() if cache.layout is None else cache.layout.states,
            attention=() if cache.layout is None else cache.layout.attention,
        )

    def _describe_masks(self) -> tuple[dict[str, MaskSpec], str]:
        if self._cache_form().layout is not None:
            return {}, "the model keeps recurrent states"
        return describe_masks(
            lambda length: last_mask(self._loop(), self.new_cache(1), length), self._max_length
        )

    @torch.no_grad()
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        past_key_values: SlotCache | None = None,
        logits_to_keep: int = 0,
        **given: Any,
    ) -> Any:
        """Run the tokens through compiled calls, and write their keys and values to the cache."""
        why = self._why_eagerly(input_ids, past_key_values, logits_to_keep, given)
        if why or input_ids is None or past_key_values is None:
            return self._eagerly(
                why, lambda: self._run_eagerly(input_ids, past_key_values, logits_to_keep, given)
            )
        start, count = past_key_values.get_seq_length(), input_ids.shape[1]
        if not count:
            raise RuntimeRefusal(
                f"the prompt has no token beyond the {start} in the cache",
                where=self._name,
                remedy="pass all tokens, those in the cache and new ones, or crop the cache",
            )
        check_room(past_key_values, start + count, self._name)
        logits = self._run_pieces(input_ids, past_key_values, start, given, logits_to_keep or count)
        return CausalLMOutputWithPast(logits=logits, past_key_values=past_key_values)

    def _why_eagerly(
        self, ids: torch.Tensor | None, cache: object, logits_to_keep: int, given: Mapping[str, Any]
    ) -> str:
        """Return why nothing is compiled for this call; empty if something is."""
        if name := unsupported_argument(given, MASK, *PER_TOKEN):
            return f"generate passes {name}"
        if ids is None or cache is None:
            return "generate calls the model without a cache or without tokens"
        if not isinstance(cache, SlotCache):
            return (
                f"generate uses a {type(cache).__name__}, not the compiled model's cache, which needs a "
                "token in each sequence that the attention mask does not hide, and recurrent states that "
                "take in no padding"
            )
        count, start = ids.shape[1], cache.get_seq_length()
        is_whole = count <= self._width <= self._max_length - start and (logits_to_keep or count) == 1
        if self._switches and not is_whole and is_switched(self._switches, given, start, count):
            return "the model's positions depend on the whole prompt's length, and it takes several pieces"
        return ""

    def _run_pieces(
        self, ids: torch.Tensor, cache: SlotCache, start: int, given: Mapping[str, Any], wanted: int
    ) -> torch.Tensor:
        while True:
            with self._lock:  # another thread may be replacing all three
                call, is_open, numbers = self.calls[0], self._is_open, self._numbers
            cache.make_room(start + ids.shape[1], numbers)
            pieces = Pieces(call, self._width, self._keeps, self._name, is_open=is_open)
            try:
                return pieces.run(ids, cache, start, given, wanted, self._mask_form(cache.slots))
            except FixedSizes as error:
                self._compile_for_fewer_sizes(call, error)

    def _compile_for_fewer_sizes(self, failed: object, why: FixedSizes) -> None:
        """Fix the size of caches; if it is fixed already, compile prompt pieces and steps separately."""
        with self._lock:
            if self.calls[0] is not failed:  # another thread did
                return
            if self._numbers.grow:
                _log.info("%s: caches are allocated at full size: %s", self._name, why)
                self._numbers = SlotNumbers(self._max_length)
            else:
                _log.info("%s: prompt pieces and steps are compiled separately: %s", self._name, why)
                self._is_open = False
            self.calls = self._compile()

    def _run_eagerly(
        self, ids: torch.Tensor | None, cache: Cache | None, logits_to_keep: int, given: Mapping[str, Any]
    ) -> Any:
        arguments = dict(given)
        if self._keeps:
            arguments["logits_to_keep"] = logits_to_keep
        if ids is not None:
            arguments["input_ids"] = ids
        run = functools.partial(self._forward, self._model)
        if not isinstance(cache, SlotCache):
            return run(past_key_values=cache, **arguments)
        start = cache.get_seq_length()
        tokens = ids if ids is not None else arguments["inputs_embeds"]
        check_room(cache, start + tokens.shape[1], self._name)
        cache.make_room(start + tokens.shape[1], cache.numbers)  # the size its masks were prepared for
        keys, values, *states = cache.buffers
        past = PastCache(keys, values, torch.tensor(start, device=cache.device), 0, cache.layout, *states)
        output = run(past_key_values=past, **arguments)
        cache.write(past.new, start, tokens.shape[1])
        cut_attentions(output, cache)
        output.past_key_values = cache
        return output


def _prompt_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
    return args[0] if args and args[0] is not None else kwargs.get("inputs", kwargs.get("input_ids"))

"""The compiled model that generates: transformers' loop around a compiled call, and the model's forward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.generation_choice import example_prompt
from torchport.compiler.open_call import OpenCall
from torchport.compiler.specialise import Specialiser
from torchport.compiler.weights import check_once
from torchport.records import Fallbacks, ProgramRecord
from torchport.targets.auto import AutoOptions

if TYPE_CHECKING:
    from torchport.generation.call_sizes import CallSizes
    from torchport.generation.generation import Generation


# Settings of a model under which eager torch generates, or which need a tokenizer: none is needed to compile.
_PLAINLY = {
    "use_cache": True,
    "guidance_scale": None,
    "output_attentions": False,
    "output_hidden_states": False,
    "prompt_lookup_num_tokens": None,
    "stop_strings": None,
    "token_healing": False,
}


class GeneratingModel(CompiledModel):
    """A transformers model compiled for a target, which generates as the model does.

    The first `generate` compiles a call for any number of tokens, or, if the target's sizes are fixed, one
    for pieces of prompts and one for single tokens; other prompts compile nothing more. The model's own
    forward is compiled when it is called or inspected.

    Args:
        specialiser: compiles the model for given inputs.
        args, kwargs: example inputs.
        max_length: the maximum number of tokens in a sequence in `generate`, prompt and new tokens together.
    """

    def __init__(
        self,
        specialiser: Specialiser,
        args: Sequence[object],
        kwargs: Mapping[str, object],
        *,
        max_length: int | None = None,
    ) -> None:
        super().__init__(specialiser, args, kwargs, lazily=True)
        self._max_length = max_length
        self._generation: Generation | None = None

    @property
    def generation(self) -> Generation:
        """What `generate` runs with."""
        with self._lock:
            if self._generation is None:
                from torchport.generation.make_generation import make_generation  # needs transformers

                self._generation = make_generation(
                    self.original,
                    self._compile_call,
                    max_length=self._max_length,
                    name=self._specialiser.name,
                    open_sizes=self._specialiser.target.takes_open_sizes(self._specialiser.options),
                )
            return self._generation

    def _compile_call(self, module: nn.Module, sizes: CallSizes) -> CompiledModel:
        inner = self._specialiser
        specialiser = Specialiser(module, inner.target, inner.options, inner.name)
        if sizes.tokens:
            return OpenCall(specialiser, sizes)
        return CompiledModel(specialiser, (), {}, lazily=True)

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as the model itself does, with every argument of transformers' `generate`.

        Args:
            args, kwargs: as transformers documents them; the prompt's tokens first, one row per sequence.

        Returns:
            What the model's own `generate` returns.

        Raises:
            RuntimeRefusal: the prompt is empty or too long, or the given cache was not made by this model.
            CompileError: the model keeps more than keys and values from step to step.
        """
        if isinstance(self._specialiser.options, AutoOptions):  # eager torch is the fastest
            return self.generation.generate_eagerly(*args, **kwargs)
        from torchport.generation.user_code import runs_no_user_code  # needs transformers

        if not runs_no_user_code(self.original, args, kwargs):
            return self.generation.generate(*args, **kwargs)
        with check_once():
            return self.generation.generate(*args, **kwargs)

    def build_generation(self, batch: int | None = None) -> None:
        """Compile what `generate` needs, as far as it is not compiled yet.

        Args:
            batch: the number of sequences; by default that of the example inputs.

        Raises:
            CompileError: the model keeps more than keys and values from step to step.
        """
        example = example_prompt(self.original, *self._examples)
        if self.original.main_input_name == "input_ids":
            example = example[:, -1:].repeat(1, self.generation.prompt_example)  # a piece, not a step
        if batch is not None:
            example = example[:1].expand(batch, *example.shape[1:]).contiguous()
        wanted = {"max_new_tokens": 2, "min_new_tokens": 2, "do_sample": False, **_PLAINLY}
        self.generation.generate(example, **wanted)

    @property
    def generation_programs(self) -> list[ProgramRecord]:
        """The records of the programs that `generate` has compiled so far."""
        if self._generation is None:
            return []
        return [record for call in self._generation.calls for record in call.programs]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls there were, including those of `generate`, and how many eager torch ran."""
        own = super().fallbacks
        if self._generation is None:
            return own
        inner = [self._generation.fallbacks.record, *[call.fallbacks for call in self._generation.calls]]
        reasons = [record.last_reason for record in (own, *inner) if record.last_reason]
        return Fallbacks(
            own.calls + sum(record.calls for record in inner),
            own.fallbacks + sum(record.fallbacks for record in inner),
            reasons[-1] if reasons else "",
        )

"""A generating model loaded from a file: runs the library's loop, or single calls without the library."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torchport.errors import PackageError, RuntimeRefusal
from torchport.generation.plain_calls import KeyValueCache, PlainCalls
from torchport.packaging.library_model import model_without_weights
from torchport.packaging.loaded_graph import LoadedGraph
from torchport.packaging.loaded_model import LoadedModel, LoadedProgram
from torchport.packaging.structure_json import dtype_of
from torchport.records import STATE_KINDS, Fallbacks, GenerationForm, Package, ProgramRecord

if TYPE_CHECKING:
    from torchport.generation.generation import Generation

_LONGEST = 1 << 31  # tokens in a sequence
_MOST_LAYERS = 1 << 12
_MOST_STATES = 1 << 28  # numbers that recurrent states hold; the largest models have some ten million
_WIDEST = 1 << 20  # numbers that a layer keeps of a token; the largest models have a few ten thousand


class LoadedGeneratingModel(LoadedModel):
    """A compiled model from a file that can generate. Created by `torchport.load`.

    Args:
        package: the file's description of the model.
        programs: its programs, ready to run.
        graph: the model's own graph, if the file contains it.
        classes: model classes permitted in addition to the library's.
        where: the file.
    """

    def __init__(
        self,
        package: Package,
        programs: Sequence[LoadedProgram],
        graph: LoadedGraph | None = None,
        classes: Iterable[type] = (),
        where: str = "",
    ) -> None:
        packaged = package.generation
        assert packaged is not None
        inside = [place for places in packaged.calls for place in places]
        if any(not 0 <= place < len(programs) for place in inside) or not packaged.calls:
            raise PackageError("the package generates with programs that it does not contain")
        _check_form(packaged.form)
        forward = [program for place, program in enumerate(programs) if place not in inside]
        super().__init__(package, forward, graph)
        self._packaged = packaged
        self._classes = tuple(classes)
        self._where = where
        self._calls = [
            LoadedModel(package, [programs[place] for place in places]) for places in packaged.calls
        ]
        self._plain = PlainCalls(packaged.form, self._calls[0], package.model)
        self._lock = threading.Lock()
        self._generation: Generation | None = None

    @property
    def form(self) -> GenerationForm:
        """How its programs are called, in particular with what size of KV cache."""
        return self._packaged.form

    @property
    def vocabulary(self) -> int | None:
        """The vocabulary size, if the configuration has it."""
        found = self._packaged.config.get("vocab_size")
        return found if isinstance(found, int) else None

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """Generate as the original model does, with every argument of the library's `generate`.

        Args:
            args, kwargs: as documented by transformers; the prompt's tokens first, one row per sequence.

        Raises:
            RuntimeRefusal: transformers is not installed, or the file has no program for this call.
            PackageError: transformers does not know the model's class, or rejects its configuration.
        """
        return self._library_loop().generate(*args, **kwargs)

    def _library_loop(self) -> Generation:
        with self._lock:
            if self._generation is None:
                name = self.package.model
                model = model_without_weights(self._packaged, self._classes, self._where or name)
                from torchport.generation.make_generation import make_generation  # needs the library

                left = list(self._calls)

                def take(*_: object) -> LoadedModel:
                    if not left:
                        raise PackageError("the package lacks a program that generation needs", where=name)
                    return left.pop(0)

                self._generation = make_generation(
                    model,
                    take,
                    max_length=self.form.max_length,
                    name=name,
                    form=self.form,
                )
            return self._generation

    def prefill(self, ids: torch.Tensor) -> tuple[torch.Tensor, KeyValueCache]:
        """Run a prompt; needs no library but torch.

        Args:
            ids: the prompt's token ids, `[sequences, tokens]`, without padding.

        Returns:
            The logits of the next token, `[sequences, vocabulary]`, and the KV cache, for `step`.

        Raises:
            RuntimeRefusal: the prompt is empty or too long, or the file has no program for this batch size.
        """
        return self._plain.run(ids, None)

    def step(self, tokens: torch.Tensor, cache: KeyValueCache) -> torch.Tensor:
        """Run one token per sequence, and return the logits of the next.

        Args:
            tokens: the token ids, `[sequences]`.
            cache: the KV cache from `prefill`, which is extended in place.

        Raises:
            RuntimeRefusal: the cache is full, or belongs to another model.
        """
        return self._plain.run(tokens.reshape(-1, 1) if isinstance(tokens, torch.Tensor) else tokens, cache)[
            0
        ]

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the model's forward, if the file contains it.

        Raises:
            RuntimeRefusal: the file has no forward, or none for these inputs.
        """
        if not self._programs:
            raise RuntimeRefusal(
                "the file contains the programs for generate, but not the model's forward",
                where=self.package.model,
                remedy="use generate, or prefill and step; or call the compiled model before it is saved",
            )
        return super().forward(*args, **kwargs)

    @property
    def generation_programs(self) -> list[ProgramRecord]:
        """The records of the programs that `generate` runs."""
        return [self.package.programs[place].record for places in self._packaged.calls for place in places]

    @property
    def fallbacks(self) -> Fallbacks:
        """How many calls were made, and how many of them fell back to eager torch."""
        records = [super().fallbacks, *(call.fallbacks for call in self._calls)]
        return Fallbacks(
            sum(record.calls for record in records),
            sum(record.fallbacks for record in records),
            next((record.last_reason for record in records if record.last_reason), ""),
        )


def _check_form(form: GenerationForm) -> None:
    """Refuse impossible cache and mask sizes.

    Raises:
        PackageError: a size or dtype is impossible.
    """
    for dtype in (form.dtype, *(spec.dtype for spec in form.masks.values() if spec.dims)):
        dtype_of(dtype)
    numbers = [number for layer in form.layers for number in layer]
    numbers += [spec.window for spec in form.masks.values()]
    dims = [spec.dims for spec in form.masks.values()]
    widest = max((heads * max(widths) for heads, *widths in form.layers), default=0)
    if (
        not 1 <= form.width <= form.max_length <= _LONGEST
        or min(numbers, default=0) < 0
        or widest > _WIDEST
        or any(dim not in (0, 2, 4) for dim in dims)
    ):
        raise PackageError("the package generates with a cache or masks of an impossible size")
    if any(spec.dims == 4 and not _is_mask_dtype(dtype_of(spec.dtype)) for spec in form.masks.values()):
        raise PackageError("the package generates with masks of an impossible dtype")
    _check_states(form)


def _check_states(form: GenerationForm) -> None:
    """Refuse recurrent states of impossible sizes, and layers that do not match them.

    Raises:
        PackageError: a size, a dtype or a layer's index is impossible.
    """
    for state in form.states:
        dtype_of(state.dtype)
    states = [(state.layer, state.kind, state.index) for state in form.states]
    indices = [*form.attention, *(layer for layer, _, _ in states)]
    sizes = [size for state in form.states for size in state.shape]
    elements = sum(math.prod(state.shape) for state in form.states)
    if (
        (form.states and len(form.attention) != len(form.layers))
        or len(set(states)) != len(states)
        or len(set(form.attention)) != len(form.attention)
        or not all(0 <= layer < _MOST_LAYERS for layer in indices)
        or not all(kind in STATE_KINDS and 0 <= index < _MOST_LAYERS for _, kind, index in states)
        or min(sizes, default=1) < 1
        or elements > _MOST_STATES
    ):
        raise PackageError("the package generates with recurrent states of an impossible form")


def _is_mask_dtype(dtype: torch.dtype) -> bool:
    return dtype is torch.bool or dtype.is_floating_point

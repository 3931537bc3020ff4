"""A model's own graph from a file: compiled for new shapes as they occur, or run by eager torch."""

from __future__ import annotations

import dataclasses
import threading
from typing import TYPE_CHECKING

import torch

from torchport import targets
from torchport.errors import RuntimeRefusal, TorchportError, one_line
from torchport.records import Fallbacks, ProgramRecord, Tries
from torchport.runtime.eager_fallback import NotCompiled
from torchport.runtime.island import LoadedIsland, check_inputs
from torchport.structure import Flat, Structure
from torchport.targets import Options
from torchport.targets.auto import AutoOptions

if TYPE_CHECKING:
    from torchport.compiler import CompiledModel


class LoadedGraph:
    """The model's graph in a package.

    Args:
        island: the graph, as a host island.
        result: the structure of its result.
        record: the record of the program for the example inputs, whose target and options are reused.
        objective: the objective by which to choose the target again, by measuring; empty to keep it.
    """

    def __init__(
        self, island: LoadedIsland, result: Structure, record: ProgramRecord, objective: str = ""
    ) -> None:
        self._island = island
        self._result = result
        self._record = record
        self._objective = objective
        self._compiled: CompiledModel | str | None = None  # or the reason it cannot be compiled
        self._lock = threading.Lock()

    @property
    def fallbacks(self) -> Fallbacks:
        """How often calls compiled for other shapes fell back to eager torch."""
        return (
            Fallbacks()
            if self._compiled is None or isinstance(self._compiled, str)
            else self._compiled.fallbacks
        )

    @property
    def tries(self) -> Tries | None:
        """The outcome for each engine tried here, once the target has been chosen again."""
        return None if self._compiled is None or isinstance(self._compiled, str) else self._compiled.tries

    def run(self, flat: Flat) -> object:
        """Run the graph on inputs of another shape, compiling it for them on the first call.

        Raises:
            RuntimeRefusal: the graph is not valid for these shapes.
            NotCompiled: it cannot be compiled.
        """
        check_inputs(self._island.meta, flat.leaves)
        with self._lock:
            if self._compiled is None:
                self._compiled = self._compile(flat.leaves)
        if isinstance(self._compiled, str):
            raise NotCompiled(self._compiled)
        outputs = self._compiled(*flat.leaves)
        return self._result.rebuild(outputs, flat.leaves, flat.objects)

    def run_eagerly(self, flat: Flat) -> object:
        """Run the graph with eager torch.

        Raises:
            RuntimeRefusal: the graph is not valid for these shapes.
        """
        check_inputs(self._island.meta, flat.leaves)
        return self._result.rebuild(self._call(*flat.leaves), flat.leaves, flat.objects)

    def _call(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            results = tuple(self._island(leaves))
        if len(results) < len(self._result.paths):
            raise RuntimeRefusal(
                "the graph returns fewer tensors than its result has",
                where=self._record.model,
                remedy="get the file again",
            )
        return results

    def _compile(self, leaves: list[torch.Tensor]) -> CompiledModel | str:
        from torchport.compiler import compile  # imported late: most loaded packages never need it

        record = self._record
        try:
            target = targets.find(record.target)
            options = target.options_from_file(record.options)
            if options.keep_modules:
                return "the graph does not record which ops belong to the modules in keep_modules"
            given = target.options_json(options)
            if self._objective:
                common = {field.name: given[field.name] for field in dataclasses.fields(Options)}
                given = {**common, "objective": self._objective}
                return compile(self._call, leaves, target="auto", options=given, name=record.model)
            if isinstance(options, AutoOptions):
                return "eager torch was the best of all engines tried for this model"
            return compile(self._call, leaves, target=target.name, options=given, name=record.model)
        except TorchportError as error:
            return f"cannot compile for other shapes: {one_line(error)}"

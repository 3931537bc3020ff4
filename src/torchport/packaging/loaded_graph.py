"""A model's own graph from a file: compiled for the shapes that come, or run by eager torch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import torch

from torchport import targets
from torchport.errors import TorchportError
from torchport.records import ProgramRecord
from torchport.runtime.island import LoadedIsland, check_inputs
from torchport.structure import Flat, Structure

_log = logging.getLogger(__name__)


class LoadedGraph:
    """The graph of a package.

    Args:
        island: the graph, as an island of the host's.
        result: the structure of what it returns.
        record: the program of the example inputs, whose target and options are used for others.
    """

    def __init__(self, island: LoadedIsland, result: Structure, record: ProgramRecord) -> None:
        self._island = island
        self._result = result
        self._record = record
        self._compiled: Callable[..., object] | None = None
        self._lock = threading.Lock()

    def run(self, flat: Flat) -> object:
        """Run the graph on inputs of another shape, for which it is compiled when they first come.

        Raises:
            RuntimeRefusal: the graph does not hold for such a shape.
        """
        check_inputs(self._island.meta, flat.leaves)
        with self._lock:
            if self._compiled is None:
                self._compiled = self._compile(flat.leaves)
        outputs = self._compiled(*flat.leaves)
        return self._result.rebuild(outputs, flat.leaves, flat.objects)  # type: ignore[arg-type]  # as `_call`

    def run_eagerly(self, flat: Flat) -> object:
        """Run the graph with eager torch.

        Raises:
            RuntimeRefusal: the graph does not hold for such a shape.
        """
        check_inputs(self._island.meta, flat.leaves)
        return self._result.rebuild(self._call(*flat.leaves), flat.leaves, flat.objects)

    def _call(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            return tuple(self._island(leaves))

    def _compile(self, leaves: list[torch.Tensor]) -> Callable[..., object]:
        from torchport.compiler import compile  # most packages are loaded without ever needing it

        record = self._record
        try:
            target = targets.find(record.target)
            options = target.options_from_file(record.options)
            if options.keep_modules:
                return self._call  # the graph does not tell which ops those are
            given = target.options_json(options)
            return compile(self._call, leaves, target=target.name, options=given, name=record.model)
        except TorchportError as error:
            _log.warning("%s: other shapes run with eager torch: %s", record.model, error)
            return self._call

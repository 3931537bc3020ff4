"""Runs a compiled graph as one CUDA graph, which avoids launching each kernel separately."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchport.errors import one_line

_log = logging.getLogger(__name__)


class CudaGraph:
    """Runs a compiled graph as one CUDA graph with its own memory, captured on the first call.

    A graph that cannot be captured, because it synchronizes with the GPU, launches its kernels one by one.
    """

    def __init__(self, made: Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]) -> None:
        self._made = made
        self._lock = threading.Lock()
        self._graph: Any = None
        self._refused = False
        self._inputs: list[torch.Tensor] = []
        self._results: list[torch.Tensor] = []
        self._done: Any = None  # event of the last call, which may have run on another stream

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the graph once."""
        if self._refused or torch.cuda.is_current_stream_capturing():
            return self._made(arguments)
        with self._lock:
            if self._graph is None:
                self._capture(arguments)
            if self._graph is None:
                return self._made(arguments)
            self._done.wait()
            for own, given in zip(self._inputs, arguments, strict=True):
                own.copy_(given)
            self._graph.replay()
            results = [result.clone() for result in self._results]
            self._done.record()
            return results

    def _capture(self, arguments: Sequence[torch.Tensor]) -> None:
        self._inputs = [argument.clone() for argument in arguments]
        before = torch.cuda.current_stream()
        aside = torch.cuda.Stream()
        aside.wait_stream(before)
        with torch.cuda.stream(aside):
            for _ in range(3):  # warm up: load kernels and let libraries choose theirs before capturing
                self._made(self._inputs)
        before.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        numbers = torch.cuda.default_generators[torch.cuda.current_device()]
        as_it_was = numbers.clone_state()
        try:
            with torch.cuda.graph(graph):
                self._results = self._made(self._inputs)
        except Exception as error:  # noqa: BLE001  # torch and its libraries raise many types
            # torch is left on the capture stream, and its random generator waits for the capture to end.
            torch.cuda.set_stream(before)
            numbers.graphsafe_set_state(as_it_was)
            self._refused, self._inputs, self._results = True, [], []
            _log.info("cannot capture a CUDA graph, so kernels are launched one by one: %s", one_line(error))
        else:
            self._graph, self._done = graph, torch.cuda.Event()

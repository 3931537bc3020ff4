"""Estimates how much rounding each layer's weight changes a model's results, from one forward pass.

The error of a layer's result is propagated to the model's results by their derivatives. Each output feature
has its own rounded weights, so errors of different features are treated as independent: their squares add up.
Errors of one feature at several positions are correlated, and averaging over positions, as attention does,
keeps the common part. So they are summed before they are squared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import fx

from torchport.quantization.lockstep import ModelGraph, weight_place
from torchport.targets.node_by_node import NodeByNode

_PROJECTIONS = 4  # random projections of the results to differentiate


def output_errors(graph: ModelGraph, rounded: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Return, by layer, the error power that its rounding causes in the results, relative to their power.

    Args:
        graph: the model.
        rounded: the rounded weight of each layer, by its path.

    Returns:
        The errors by path; an empty dict if torch cannot differentiate the model.
    """
    if not graph.items:
        return {}
    watch = _ErrorRun(graph, rounded)
    try:
        with torch.enable_grad():
            results = _floats(watch.run(*[item.clone() for item in graph.items[0]]), graph.results)
            if not any(each.requires_grad for each in results):
                return {}
            power = sum(float(each.detach().double().square().sum()) for each in results)
            found = dict.fromkeys(watch.errors, 0.0)
            generator = torch.Generator().manual_seed(0)  # keeps torch's global generator unchanged
            for _ in range(_PROJECTIONS):
                signs = [torch.randint(2, each.shape, generator=generator) * 2 - 1 for each in results]
                total = sum((each * sign).sum() for each, sign in zip(results, signs, strict=True))
                assert isinstance(total, torch.Tensor)
                for path, error in zip(found, watch.gradients(total), strict=True):
                    found[path] += error / _PROJECTIONS
    except (RuntimeError, NotImplementedError):
        return {}  # an op that torch cannot differentiate
    return {path: error / power for path, error in found.items()} if power > 0 else {}


class _ErrorRun(NodeByNode):
    """Runs a graph, adding zeros to each layer's result, with respect to which gradients are computed."""

    def __init__(self, graph: ModelGraph, rounded: Mapping[str, torch.Tensor]) -> None:
        super().__init__(graph.graph_module)
        self._graph = graph
        self._rounded = rounded
        self.errors: dict[str, torch.Tensor] = {}
        self._zeros: list[torch.Tensor] = []

    def run_node(self, n: fx.Node) -> object:
        """Run a node; for a layer, record the error of its result with the rounded weight."""
        result = super().run_node(n)
        path = self._graph.weights.get(n)
        if path is None or path not in self._rounded or not isinstance(result, torch.Tensor):
            return result
        place = weight_place(n)
        arguments, keywords = self.fetch_args_kwargs_from_env(n)
        with torch.no_grad():
            changed = [*arguments]
            changed[place] = self._rounded[path]
            assert callable(n.target)
            self.errors[path] = n.target(*changed, **keywords) - result
        zero = torch.zeros_like(result, requires_grad=True)
        self._zeros.append(zero)
        return result.detach() + zero if not result.requires_grad else result + zero

    def gradients(self, total: torch.Tensor) -> Iterable[float]:
        """Yield, for each layer, the squared error that it causes in a sum of the results."""
        slopes = torch.autograd.grad(total, self._zeros, retain_graph=True, allow_unused=True)
        for slope, error in zip(slopes, self.errors.values(), strict=True):
            yield (0.0 if slope is None else float(_by_output(slope * error).sum(0).double().square().sum()))


def _floats(results: object, places: Collection[int]) -> list[torch.Tensor]:
    given = results if isinstance(results, (list, tuple)) else [results]
    judged = [each for place, each in enumerate(given) if place in places]
    return [each for each in judged if isinstance(each, torch.Tensor) and each.is_floating_point()]


def _by_output(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])

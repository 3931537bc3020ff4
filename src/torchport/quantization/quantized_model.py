"""The quantized model: a module that eager torch runs as a simulation, and that compiles like any other."""

from __future__ import annotations

import json
from pathlib import Path

from torch import fx, nn

from torchport.errors import QuantizationError, RuntimeRefusal
from torchport.quantization.float_graph import CapturedCall
from torchport.records import atomic_write
from torchport.records.quantization import QuantizationPlan, QuantizationReport
from torchport.structure import flatten_call


class GraphCall(nn.Module):
    """A graph with the call signature of the model that it was captured from.

    Args:
        graph_module: maps the input tensors to the result tensors.
        captured: the structures of inputs and result, and the shape limits.
    """

    def __init__(self, graph_module: fx.GraphModule, captured: CapturedCall) -> None:
        super().__init__()
        self.graph_module = graph_module
        self._captured = captured

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the graph.

        Raises:
            QuantizationError: the inputs do not match those of the calibration data.
        """
        flat = flatten_call(args, dict(kwargs))
        if flat.structure != self._captured.inputs:
            raise QuantizationError(
                "the inputs do not match those that it was calibrated with",
                where=self._captured.name,
                remedy=f"give {', '.join(self._captured.inputs.paths)}",
            )
        if all(isinstance(size, int) for leaf in flat.leaves for size in leaf.shape):
            try:
                self._captured.check(flat.leaves)
            except RuntimeRefusal as error:
                raise QuantizationError(
                    error.what,
                    where=self._captured.name,
                    remedy="quantize it with calibration data of that shape",
                ) from error
        # It was captured on contiguous tensors, whose views other memory orders may not have.
        results = self.graph_module(*(leaf.contiguous() for leaf in flat.leaves))
        return self._captured.result.rebuild(list(results), flat.leaves, flat.objects)


class QuantizedModel(nn.Module):
    """A model whose layers compute in the precisions of its plan. Made by `torchport.quantize`.

    Args:
        module: the module that computes it.
        plan: each layer's precision, and the reason for it.
        report: the measurements.

    It is called like the original model. Eager torch simulates it; `torchport.compile` makes it run in int8.
    """

    def __init__(self, module: nn.Module, plan: QuantizationPlan, report: QuantizationReport) -> None:
        super().__init__()
        self.module = module
        self.plan = plan
        self.report = report
        self.eval()

    def forward(self, *args: object, **kwargs: object) -> object:
        """Call the model, simulated in floats."""
        return self.module(*args, **kwargs)

    def save_plan(self, path: str | Path) -> None:
        """Write the plan as JSON; `torchport.quantization.read_plan` reads it, edited or not."""
        with atomic_write(Path(path)) as file:
            file.write_text(json.dumps(self.plan.to_json(), indent=2) + "\n", encoding="utf-8")

"""`torch.compile(model, backend=torch_ttnn.backend, options=TorchTtnnOption(device))`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from torch import fx

import torchport
from torchport.errors import TargetError


@dataclass(frozen=True)
class TorchTtnnOption:
    """How a model is run on Tenstorrent's chips.

    Args:
        device: a `ttnn` device, or its number; None or `"mock"` selects torchport's simulator.
        verbose: has no effect; torchport uses Python's logging.
        gen_graphviz, metrics_path, run_mem_analysis, run_eviction_opt, tracer_option, bypass_compile,
            data_parallel: refused if set; the message names an alternative.

    Raises:
        TargetError: a setting is not supported, or `device` is not a device.

    Example:
        >>> torch.compile(model, backend=torch_ttnn.backend, options=TorchTtnnOption(device=None))
    """

    device: object = None
    gen_graphviz: bool = False
    metrics_path: str = ""
    run_mem_analysis: bool = False
    run_eviction_opt: bool = False
    verbose: bool = True
    tracer_option: object = None
    bypass_compile: bool = False
    data_parallel: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name in INSTEAD and getattr(self, field.name) != field.default:
                raise TargetError(
                    f"torch_ttnn's option {field.name} is not supported", remedy=INSTEAD[field.name]
                )
        self.target_options()

    def target_options(self) -> dict[str, object]:
        """Return the options of torchport's ttnn target."""
        if self.device is None or self.device == "mock":
            return {"simulate": True}
        get_number = getattr(self.device, "id", None)
        number = get_number() if callable(get_number) else self.device
        if isinstance(number, bool) or not isinstance(number, int):
            raise TargetError(
                f"{self.device!r} is not a device",
                remedy="pass a ttnn device, its number, or None to simulate",
            )
        return {"device_id": number}


INSTEAD = {
    "gen_graphviz": "`torchport bench MODEL --target ttnn --html FILE` draws the graph",
    "metrics_path": "`torchport bench MODEL --target ttnn -o DIR` records ops, times and accuracy",
    "run_mem_analysis": "`torchport analyze MODEL` shows memory over time",
    "run_eviction_opt": "tensors are in DRAM, unless options={'memory': 'l1'} places them in L1",
    "tracer_option": "torch.compile(model, backend='torchport_stat') records a program's ops",
    "bypass_compile": "call the model itself",
    "data_parallel": "a program runs on one chip",
}


def backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: TorchTtnnOption | Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Compile one graph of `torch.compile` for Tenstorrent's chips, or for the simulator if there is none.

    Args:
        graph_module, example_inputs: the graph and inputs that `torch.compile` passes.
        options: a `TorchTtnnOption`, or options of torchport's ttnn target.
        mode: ignored; torch.compile's modes are for inductor.

    Example:
        >>> torch.compile(model, backend=torch_ttnn.backend)
    """
    given = options.target_options() if isinstance(options, TorchTtnnOption) else dict(options or {})
    return torchport.backend(graph_module, example_inputs, options={"target": "ttnn", **given})

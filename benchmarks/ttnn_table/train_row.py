"""One step of training of a row's model on the ttnn target, its gradients compared with eager torch's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from models import load_to_run
from rows import Trained, reasons
from torch import fx, nn

import torchport
from torchport import targets
from torchport.compiler.graph_programs import recording_coverage
from torchport.compiler.plan import Planner
from torchport.compiler.training_graph import normal_graph, partition_for
from torchport.errors import one_line
from torchport.records import PCC_THRESHOLD, Coverage
from torchport.structure import tensors_in
from torchport.torch_private import aot_autograd, make_boxed_func
from torchport.verification import compare
from torchport.zoo.model import Model

_log = logging.getLogger(__name__)


def train_row(name: str) -> Trained:
    """Run one row; whatever a model raises is in the record."""
    built: list[Coverage] = []
    try:
        model = load_to_run(name)
        without_chance(model.module.train())
        with recording_coverage() as built:
            ours = gradients(model, torch.compile(model.module, backend="torchport", options=_OPTIONS))
        before = torchport.fallbacks()
        record = _with_gradients(_with_ops(Trained(name), built), ours, model)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row is lost
        _log.debug("%s failed", name, exc_info=True)
        return _with_ops(Trained(name, error=one_line(error)), built)
    if before.fallbacks:
        return _with_ops(Trained(name, error=f"eager torch ran it: {before.last_reason}"), built)
    return record


def explain_training(name: str) -> Trained:
    """Explain a row's training graphs for the target, running the step with eager torch."""
    target = targets.find_engine("ttnn")
    options = target.make_options({"dtype": _OPTIONS["dtype"]})
    try:
        graphs = graphs_of_training(name)
        plans = [Planner(name, normal_graph(graph), target, options).plan() for graph in graphs]
    except Exception as error:  # noqa: BLE001  # as above
        _log.debug("%s failed", name, exc_info=True)
        return Trained(name, error=one_line(error))
    return _with_ops(Trained(name), [plan.coverage for plan in plans])


def graphs_of_training(name: str) -> list[fx.GraphModule]:
    """Return a row's forward and backward graphs, from a step that eager torch runs."""
    graphs: list[fx.GraphModule] = []

    def keep(graph: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        graphs.append(graph)
        return make_boxed_func(graph)

    target = targets.find_engine("ttnn")
    backend = aot_autograd(
        fw_compiler=keep,
        bw_compiler=keep,
        decompositions=dict(target.training_decompositions()),
        partition_fn=partition_for(target),
    )
    model = load_to_run(name)
    without_chance(model.module.train())
    gradients(model, torch.compile(model.module, backend=backend))
    return graphs


# In bfloat16 the error of gradients is about that of eager torch in bfloat16: it would only show the dtype's.
_OPTIONS = {"target": "ttnn", "dtype": "float32"}


def without_chance(module: nn.Module) -> None:
    """Turn off dropout of modules and functions: two steps would drop different elements."""
    for part in module.modules():
        chances = [name for name in vars(part) if "drop" in name] + ["p"] * ("Drop" in type(part).__name__)
        for name in chances:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)


def gradients(model: Model, call: Callable[..., object]) -> dict[str, torch.Tensor]:
    """Run a step and return the gradient of each parameter that has one, by name.

    The loss is the sum over results of their mean squares.
    """
    state = {name: value.clone() for name, value in model.module.named_buffers()}
    model.module.zero_grad()
    results = [each for _, each in tensors_in(call(*model.args, **model.kwargs)) if each.requires_grad]
    loss = torch.stack([each.square().mean() for each in results]).sum()
    loss.backward()
    with torch.no_grad():
        for name, value in model.module.named_buffers():
            value.copy_(state[name])  # restore running statistics, from which the next step starts
    found = {name: weight.grad for name, weight in model.module.named_parameters()}
    return {name: gradient.clone() for name, gradient in found.items() if gradient is not None}


def _with_ops(record: Trained, built: list[Coverage]) -> Trained:
    if not built:
        return record
    return replace(
        record,
        ops_before=sum(each.ops_before for each in built),
        ops_remain=sum(each.ops_remain for each in built),
        transfers=sum(each.transfers for each in built),
        reasons=reasons(built),
    )


def _with_gradients(record: Trained, ours: dict[str, torch.Tensor], model: Model) -> Trained:
    wanted = gradients(model, model.module)
    if ours.keys() != wanted.keys():
        differing = sorted(ours.keys() ^ wanted.keys())
        return replace(record, error=f"only one of the two has a gradient of {', '.join(differing[:3])}")
    pccs = {name: compare(ours[name], wanted[name]).pcc for name in wanted}
    worst = min(pccs, key=lambda name: pccs[name])
    below = [name for name, pcc in pccs.items() if pcc < PCC_THRESHOLD]
    excess = None
    if below:
        exact = gradients(_doubled(model), model.module)
        excess = max(
            _distance(ours[name], exact[name]) / max(_distance(wanted[name], exact[name]), 1e-30)
            for name in below
        )
    return replace(
        record, parameters=len(pccs), pcc=pccs[worst], worst=worst, below=len(below), excess=excess
    )


def _distance(gradient: torch.Tensor, exact: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(gradient.double() - exact))


def _doubled(model: Model) -> Model:
    """Return the model in float64; its module is changed for that."""

    def double(value: object) -> object:
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.double() if is_float else value

    model.module.double()
    kwargs = {name: double(value) for name, value in model.kwargs.items()}
    return replace(model, args=tuple(map(double, model.args)), kwargs=kwargs)

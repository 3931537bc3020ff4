"""The dry run: which ops of a model a target would take, without building anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from torchport import capture, targets
from torchport.compiler.kept_modules import check_kept_modules
from torchport.compiler.normalise import normalise
from torchport.compiler.plan import Planner
from torchport.records import DEFAULT_TARGET, Coverage, ModelGraph


def explain(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    target: str = DEFAULT_TARGET,
    options: Mapping[str, object] | None = None,
    name: str = "",
) -> Coverage:
    """Report which ops of a model a target would take, and why the rest would stay.

    Needs neither a device nor a build nor the target's library.

    Args:
        model: a module, or any callable on tensors.
        args, kwargs: example inputs.
        target: the target's name.
        options: the target's options.
        name: the model's name in the record.

    Returns:
        The coverage: counts, islands, and one row with the reason for each op that stays.

    Raises:
        CaptureError: the model cannot be captured.
        TargetError: there is no such target or option.

    Example:
        >>> explain(torch.nn.Linear(2, 3), (torch.ones(1, 2),), target="host").ops_remain
        0
    """
    return explain_graph(model, args, kwargs, target=target, options=options, name=name)[0]


def explain_graph(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    target: str,
    options: Mapping[str, object] | None = None,
    name: str = "",
) -> tuple[Coverage, ModelGraph]:
    """Like `explain`, and return the graph too, with every op's verdict."""
    found = targets.find_engine(target)
    chosen = found.make_options(options)
    check_kept_modules(model, chosen, name)
    captured = capture.export(model, args, kwargs, name=name)
    graph = normalise(captured, found)
    plan = Planner(captured.name, graph, found, chosen).plan()
    return plan.coverage, plan.record_graph()

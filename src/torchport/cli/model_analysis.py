"""Analyzes models by name; library models without weights where possible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from torchport.cli.model_options import ModelRequest
from torchport.cli.output import Output
from torchport.errors import CaptureError, one_line
from torchport.records import Analysis

if TYPE_CHECKING:
    from torchport.zoo import Model


def analyze_named(output: Output, name: str, request: ModelRequest, *, backward: bool = False) -> Analysis:
    """Load a model and analyze it."""
    with output.working(f"Analyzing {name}"):
        model = request.load(name, without_values=True)
        try:
            return _of(model, name, backward)
        except CaptureError:
            if not any(parameter.is_meta for parameter in model.module.parameters()):
                raise
        output.message(f"{name}: cannot be traced without weights; loading them")
        return _of(request.load(name), name, backward)


def analyses_for_page(output: Output, names: Iterable[str], request: ModelRequest) -> tuple[Analysis, ...]:
    """Analyze models for another command's page; a model that fails is reported and left out."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(analyze_named(output, name, request))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file may do anything when it is run
            output.message(f"{name} was not analyzed: {one_line(error)}")
    return tuple(found)


def _of(model: Model, name: str, backward: bool) -> Analysis:
    from torchport import analysis

    file, separator, function = name.rpartition("::")
    origin = analysis.ModelOrigin(f"{file}:{function}" if separator else name, function.split(":")[-1])
    return analysis.analyze(
        model.module, model.args, model.kwargs, backward=backward, name=name, origin=origin
    )

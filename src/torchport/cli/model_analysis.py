"""Analyses models by their names; a library's without their values, where that will do."""

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
    """Load a model and analyse it."""
    with output.working(f"Analysing {name}"):
        model = request.load(name, without_values=True)
        try:
            return _of(model, name, backward)
        except CaptureError:
            if not any(parameter.is_meta for parameter in model.module.parameters()):
                raise
        output.message(f"{name}: it does not run without values; loading them")
        return _of(request.load(name), name, backward)


def analyses_for_page(output: Output, names: Iterable[str], request: ModelRequest) -> tuple[Analysis, ...]:
    """Analyse models for the page of another command; one that cannot be is named, and left out."""
    found = []
    for name in dict.fromkeys(names):
        try:
            found.append(analyze_named(output, name, request))
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's file may do anything when it is run
            output.message(f"{name} is not analysed: {one_line(error)}")
    return tuple(found)


def _of(model: Model, name: str, backward: bool) -> Analysis:
    from torchport import analysis

    file, separator, function = name.rpartition("::")
    origin = analysis.ModelOrigin(f"{file}:{function}" if separator else name, function.split(":")[-1])
    return analysis.analyze(
        model.module, model.args, model.kwargs, backward=backward, name=name, origin=origin
    )

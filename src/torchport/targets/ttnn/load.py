"""Loads a built island: on the chip if there is one, else on the simulator."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from torchport.errors import TargetError, one_line
from torchport.records import TensorSpec
from torchport.targets.artifact_properties import read_input_ranges
from torchport.targets.target import Artifact, GaveNaN, OutOfRange, Runner
from torchport.targets.ttnn.format import unpack
from torchport.targets.ttnn.library import has_device
from torchport.targets.ttnn.options import TtnnOptions
from torchport.targets.ttnn.replay import check_calls, check_crossings
from torchport.targets.ttnn.simulator import Simulation

_BFLOAT16_MOST = torch.finfo(torch.bfloat16).max


def load(
    artifact: Artifact, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], options: TtnnOptions
) -> Runner:
    """Return a function that runs the island.

    Raises:
        TargetError: the artefact has another format, torchport cannot have written the program, or the
            library rejects it.
    """
    program, weights = unpack(artifact)
    check_crossings(program, inputs, outputs)
    on_device = has_device() and not options.simulate
    check_calls(program, simulated=not on_device)
    bounds = read_input_ranges(artifact.properties, inputs, "ttnn")
    floats = [index for index, spec in enumerate(inputs) if "float" in spec.dtype]
    rounded = {index for index in floats if program.inputs[index].tensor.dtype == "bfloat16"}
    run: Runner
    if on_device:
        from torchport.targets.ttnn.chip import on_chip

        run = on_chip(program, weights, options.device_id)
    else:
        run = Simulation(program, weights)

    def checked(arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        for index, low, high in bounds:
            _check_range(arguments[index], low, high)
        given = list(arguments)
        for index in floats:
            given[index] = _without_overflow(arguments[index], index in rounded)
        try:
            results = run(given)
        except (RuntimeError, IndexError) as error:  # such as an out-of-range index held in a weight
            raise TargetError(f"the program fails: {one_line(error)}", where="ttnn") from error
        if any(result.is_floating_point() and result.isnan().any() for result in results):
            raise GaveNaN(results)
        return results

    return checked


def _check_range(argument: torch.Tensor, low: int, high: int) -> None:
    """Refuse integers that the device would truncate, or that are out of bounds as indices."""
    if argument.numel() == 0:
        return
    least, most = torch.aminmax(argument)
    if least.item() < low or most.item() > high:
        raise OutOfRange(f"an integer input holds values outside {low} … {high}")


def _without_overflow(argument: torch.Tensor, is_rounded: bool) -> torch.Tensor:
    """Refuse NaN; return floats whose finite elements stay finite if they are rounded to bfloat16.

    Such as float32's lowest number, in masks.
    """
    if argument.numel() == 0:
        return argument
    least, most = (limit.item() for limit in torch.aminmax(argument))
    if math.isnan(least):
        raise OutOfRange("an input holds NaN, which some of the device's kernels do not propagate")
    if not is_rounded or max(-least, most) <= _BFLOAT16_MOST:
        return argument
    return torch.where(argument.isinf(), argument, argument.clamp(-_BFLOAT16_MOST, _BFLOAT16_MOST))

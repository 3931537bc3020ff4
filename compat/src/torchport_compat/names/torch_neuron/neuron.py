"""`torch.neuron.trace` and `torch.neuron.analyze_model`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import torchport
from torchport.packaging.torchscript import Script
from torchport.packaging.trace_model import Callee
from torchport.records import DEFAULT_TARGET, Coverage

_log = logging.getLogger("Neuron")

# An argument of Neuron's compiler → the equivalent option of torchport's targets.
ARGUMENTS = {"--neuroncore-pipeline-cores": "--threads"}

CompilerArgs = Sequence[str] | Mapping[str, object] | None


def trace(
    model: Callee,
    example_inputs: object,
    compiler_args: CompilerArgs = None,
    *,
    compiler_timeout: float | None = None,
    compiler_workdir: str | os.PathLike[str] | None = None,
    check_trace: bool = True,
    check_inputs: Sequence[object] | None = None,
    check_tolerance: float | None = None,
    dynamic_batch_size: bool = False,
    target: str = DEFAULT_TARGET,
) -> Script | Callee:
    """Compile a model ahead of time, and return it as TorchScript; see `torchport.trace`.

    Args:
        model: a module, its `forward`, or a function on tensors.
        example_inputs: a tensor, or a tuple or list of inputs.
        compiler_args: the target's options, which apply to all islands; `--neuroncore-pipeline-cores N` sets
            the number of threads.
        compiler_timeout, compiler_workdir, check_trace, check_inputs, check_tolerance: as in
            `torchport.trace`.
        dynamic_batch_size: whether the first dimension of the inputs may vary.
        target: the target's name.

    Example:
        >>> torch.neuron.trace(model.eval(), torch.rand(1, 3)).save("model_neuron.pt")
    """
    return torchport.trace(
        model,
        example_inputs,
        target=target,
        compiler_args=_translated(compiler_args),
        compiler_timeout=compiler_timeout,
        compiler_workdir=compiler_workdir,
        check_trace=check_trace,
        check_inputs=check_inputs,
        check_tolerance=check_tolerance,
        settings=torchport.TraceSettings(dynamic_batch_size=dynamic_batch_size),
    )


def analyze_model(model: Callee, example_inputs: object, *, target: str = DEFAULT_TARGET) -> Coverage:
    """Determine which ops of a model a target supports, and why not the rest; nothing is compiled.

    Args:
        model, example_inputs, target: as in `trace`.

    Returns:
        The result of `torchport.explain`; a summary is logged to the logger `Neuron`.

    Example:
        >>> torch.neuron.analyze_model(model, example_inputs=[image]).complete
        True
    """
    args = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    found = torchport.explain(model, args, target=target)
    _log.info("%s supports %d of %d ops", target, found.ops_before - found.ops_remain, found.ops_before)
    for op in found.stayed:
        _log.info("%s stays on the host: %s (%s)", op.op, op.reason, op.detail)
    return found


def _translated(given: CompilerArgs) -> CompilerArgs:
    if given is None or isinstance(given, (str, Mapping)):
        return given
    return [ARGUMENTS.get(argument, argument) for argument in given]

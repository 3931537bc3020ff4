"""Tries built islands against eager torch on the example inputs, and finds the ops at fault."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from torchport.compiler.outline import Piece, spec_of
from torchport.errors import one_line
from torchport.records import Verdict
from torchport.targets import Artifact, Island, Options, Target
from torchport.targets.target import GaveNaN, OutOfRange
from torchport.verification.correlation import close_as_a_whole, correlation

_LEAST_CORRELATION = 0.99


class Reference(fx.Interpreter):
    """Runs the whole graph with eager torch, once, and keeps the values that islands are tried on."""

    def __init__(self, graph_module: fx.GraphModule, wanted: set[fx.Node]) -> None:
        super().__init__(graph_module)
        self.extra_traceback = False  # what the model raises is raised as it is
        self.wanted = wanted
        self.values: dict[fx.Node, object] = {}

    def run_node(self, n: fx.Node) -> object:
        """Run a node, and keep its value if it is wanted."""
        value = super().run_node(n)
        if n in self.wanted:
            self.values[n] = value
        return value


def reference_values(
    graph_module: fx.GraphModule, leaves: Sequence[torch.Tensor], wanted: set[fx.Node]
) -> dict[fx.Node, object]:
    """Return what eager torch computes for the wanted nodes; torch's random state is left as it was."""
    reference = Reference(graph_module, wanted)
    # Ops of the model's own may draw on an accelerator, though no island does.
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.no_grad(), torch.random.fork_rng(devices=devices):
        reference.run(*leaves)
    return reference.values


def difference(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], loose: bool) -> str:
    """Return in what an island's results differ from eager's; empty if they are close enough.

    Args:
        actual, expected: the results.
        loose: whether the device was asked to compute in less than float32.
    """
    for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {index} is {spec_of(ours)} instead of {spec_of(theirs)}"
        if not theirs.is_floating_point() and not theirs.is_complex():
            if not torch.equal(ours, theirs):
                return f"output {index}, integers, differs"
            continue
        if theirs.dtype is torch.complex32:
            ours, theirs = ours.to(torch.complex64), theirs.to(torch.complex64)
        finite = torch.isfinite(theirs)
        if not torch.equal(ours.isnan(), theirs.isnan()) or not torch.equal(
            ours[theirs.isinf()], theirs[theirs.isinf()]
        ):
            return f"output {index} differs in where it is not finite"
        if not finite.any():
            continue
        wide = torch.complex128 if theirs.is_complex() else torch.float64
        left, right = ours[finite].to(wide), theirs[finite].to(wide)
        relative, absolute = (5e-2, 5e-2) if loose else _tolerance(theirs.dtype)
        # The error of a long sum scales with the largest of what was summed, not with the result.
        allowed = relative * right.abs() + absolute * right.abs().max() + 1e-6
        worst = ((left - right).abs() - allowed).max().item()
        if not worst <= 0:
            return f"output {index} is off by {(left - right).abs().max().item():.3g}"
    return ""


def correlates(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> bool:
    """Whether results in a low precision have the shape of eager's, though elements are further off.

    Over hundreds of ops rounding adds up to more than a single op's tolerance. A wrong op shows here
    too, and each op's own lowering is held to that tolerance by itself.
    """
    for ours, theirs in zip(actual, expected, strict=True):
        finite = torch.isfinite(theirs)
        if not theirs.is_floating_point() or not torch.equal(finite, torch.isfinite(ours)):
            return False
        left, right = ours[finite].double().flatten(), theirs[finite].double().flatten()
        pcc = correlation(left, right, step=2.0**-8, close=False)
        if not close_as_a_whole(left, right, pcc=pcc, least=_LEAST_CORRELATION):
            return False
    return True


def _tolerance(dtype: torch.dtype) -> tuple[float, float]:
    if dtype in (torch.bfloat16, torch.float16):
        return 3e-2, 3e-2
    return 1e-3, 1e-4


def find_culprits(
    piece: Piece,
    target: Target,
    options: Options,
    values: dict[fx.Node, object],
) -> dict[fx.Node, Verdict]:
    """Build and run each op of an island on its own, and return the verdicts on those that fail."""
    found: dict[fx.Node, Verdict] = {}
    for node in piece.ops:
        problem = _problem_alone(node, target, options, values)
        if problem is not None:
            found[node] = problem
    return found


def _problem_alone(
    node: fx.Node, target: Target, options: Options, values: dict[fx.Node, object]
) -> Verdict | None:
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    weights: dict[str, Any] = {}
    inputs = [source for source in node.all_input_nodes if source.op != "get_attr"]
    for source in node.all_input_nodes:
        if source in inputs:
            copies[source] = graph.placeholder(source.name)
        else:  # still a weight: a target may prepare it
            weights[str(source.target)] = values[source]
            copies[source] = graph.create_node("get_attr", str(source.target))
        copies[source].meta = dict(source.meta)
    call = graph.node_copy(node, copies.__getitem__)
    call.meta = dict(node.meta)
    value = values[node]
    results = [call]
    expected: list[Any] = [value]
    if isinstance(value, (tuple, list)):
        looks = [user for user in node.users if isinstance(user.args[1], int)]
        expected = [value[look.args[1]] for look in looks]  # type: ignore[index]
        results = [graph.node_copy(look, lambda source: call) for look in looks]
    graph.output(tuple(results))
    arguments: list[Any] = [values[source] for source in inputs]
    if not all(isinstance(item, torch.Tensor) for item in (*arguments, *expected)):
        return None
    island = Island(
        f"only_{node.name}",
        fx.GraphModule(weights, graph),
        tuple(spec_of(argument) for argument in arguments),
        tuple(spec_of(result) for result in expected),
    )
    try:
        artifact = target.build(island, options)
        actual = run_artifact(artifact, island, target, options, arguments)
    except GaveNaN as error:
        actual = error.results
    except OutOfRange:
        return None
    except subprocess.TimeoutExpired:
        raise  # who set a limit wants to know
    except Exception as error:  # noqa: BLE001  # a device and its compiler may raise anything
        return Verdict(False, "build_failed", one_line(error), "report it to the target's maintainers")
    problem = difference(actual, expected, target.is_low_precision(options))
    if problem:
        return Verdict(False, "inaccurate", f"{node.target} does not equal eager torch: {problem}")
    return None


def run_artifact(
    artifact: Artifact,
    island: Island,
    target: Target,
    options: Options,
    arguments: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Load an artefact and run it once."""
    with torch.no_grad():
        return target.load(artifact, island.inputs, island.outputs, options)(arguments)

"""Plan → program: builds the islands, tries them, and plans again without the ops that fail."""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import fx

from torchport.compiler import speed_trial
from torchport.compiler.cache import Built, build_or_read
from torchport.compiler.culprits import find_culprits
from torchport.compiler.island_trial import island_difference, reference_values
from torchport.compiler.normalise import NormalGraph
from torchport.compiler.open_sizes import OpenSizes
from torchport.compiler.outline import Piece, host_graph, spec_of
from torchport.compiler.plan import Plan, Planner
from torchport.compiler.recorded_layouts import lay_out_as_recorded
from torchport.compiler.speed_trial import find_slow_ops
from torchport.errors import CompileError, one_line
from torchport.records import IslandMeta, ProgramRecord, TensorSpec, Verdict
from torchport.runtime.autocast import without_autocast
from torchport.runtime.island import load_island
from torchport.runtime.runnable_program import RunnableProgram
from torchport.structure import Structure
from torchport.targets import Options, Target
from torchport.targets.child_build import is_isolated, isolated
from torchport.targets.heap import return_free_memory
from torchport.targets.mapped_payload import release_pages
from torchport.targets.target import GaveNaN, OutOfRange
from torchport.torch_private import FakeTensor
from torchport.version import __version__

_log = logging.getLogger(__name__)

# Each round moves at least one op to the host, so this many rounds mean that something is wrong.
_ROUNDS = 20


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a program is built from.

    Args:
        name: the model's name.
        graph: its graph.
        leaves: the example inputs' tensors.
        paths: the path of each one in the inputs.
        result: the structure of the results.
        sizes: the open sizes, if there are any.
    """

    name: str
    graph: NormalGraph
    leaves: tuple[torch.Tensor, ...]
    paths: tuple[str, ...]
    result: Structure
    sizes: OpenSizes | None = None


@without_autocast()
def build_program(source: Source, target: Target, options: Options) -> tuple[RunnableProgram, Plan]:
    """Build all islands of a graph and assemble the program.

    Raises:
        CompileError: the model has no weights in memory, or they are on a device that the target cannot use.
        TargetError: the target is not installed, or its device is absent.
        TimeoutExpired: a build took longer than the target's limit for it.
        NotOpen: sizes are open, and one program cannot serve all of them.
    """
    _refuse_other_memory(source, target)
    target.check_ready(options)
    if any(leaf.device.type == "cuda" for leaf in source.leaves):
        lay_out_as_recorded(source.graph.graph_module, source.leaves)
    target = _isolated_if_requested(source, target, options)
    began = time.perf_counter()
    planner = Planner(source.name, source.graph, target, options, source.sizes)
    tried = _inputs_to_try(source, planner)
    values: list[dict[fx.Node, object]] = []
    for turn in range(_ROUNDS):
        plan = planner.plan()
        made, failed = _build_all(plan, target, options)
        if options.check and made and not failed:
            values = values or _values(planner, plan, tried)
            low_precision = _is_low_precision(source, target, options)
            failed = _try_all(plan.pieces, made, values, low_precision)
            if failed:
                failed = _rebuild_and_try(plan, made, failed, values, target, options, low_precision)
        slow: dict[fx.Node, Verdict] = {}
        # In the later rounds, islands that are correct are used even if they are slower.
        if made and not failed and turn < _ROUNDS // 2 and speed_trial.is_wanted(target, options):
            values = values or _values(planner, plan, tried)
            slow = _time_all(plan.pieces, made, values[0], target, options, time.perf_counter() - began)
        if not failed and not slow:
            if source.sizes is not None:
                source.sizes.check_assumptions(source.graph)
            program = _program(source, plan, made, target, options)
            del values, made
            return_free_memory()
            return program, plan
        for node, verdict in slow.items():
            planner.force(node, verdict)
        values = _references(planner, _everything(planner), tried)
        for piece, verdict in failed:
            _blame(planner, piece, verdict, target, options, values)
    raise CompileError(
        f"no plan works after {_ROUNDS} tries", where=source.name, remedy="name the ops in keep_ops"
    )


def _isolated_if_requested(source: Source, target: Target, options: Options) -> Target:
    """Return the target, wrapped to build in a child process if requested; not possible for GPU tensors."""
    on_cpu = all(leaf.device.type == "cpu" for leaf in source.leaves)
    wanted = options.child_trial and on_cpu and not is_isolated(target)
    return isolated(target, run=True) if wanted else target


def _refuse_other_memory(source: Source, target: Target) -> None:
    """Refuse tensors whose values are not in the host's memory, where islands read and write."""
    tensors = [(path or "an input", leaf) for path, leaf in zip(source.paths, source.leaves, strict=True)]
    tensors += [(weight.name, weight.tensor) for weight in source.graph.weights.values()]
    for name, tensor in tensors:
        if isinstance(tensor, FakeTensor) or tensor.is_meta:
            raise CompileError(
                "the model has no weights or inputs in memory",
                where=source.name,
                remedy="torchport.explain works without them; to compile, load the weights",
            )
        if tensor.device.type not in target.device_types:
            raise CompileError(
                f"{name} is on {tensor.device}, and the target {target.name} takes CPU tensors only",
                where=source.name,
                remedy="move the model and its inputs to the CPU, with .cpu()",
            )


def _is_low_precision(source: Source, target: Target, options: Options) -> bool:
    """Whether results may differ by more than float32 rounding: GPUs use TF32 for matrix products."""
    return target.is_low_precision(options) or any(leaf.is_cuda for leaf in source.leaves)


class _Made:
    """A built island with its metadata as JSON."""

    def __init__(self, piece: Piece, built: Built, target: Target, options: Options) -> None:
        artifact = built.artifact
        self.found = built.found  # in the disk cache
        self.key = built.key
        self.blob = torch.from_numpy(artifact.payload)
        self.record = IslandMeta(
            name=piece.island.name,
            target=target.name,
            digest=artifact.digest,
            inputs=piece.island.inputs,
            outputs=piece.island.outputs,
            options=target.options_json(options),
            properties=artifact.properties,
            versions=versions(target),
        )
        self.meta = self.record.to_text()
        # The user's own options, which may differ from those that a file can hold.
        self.island = load_island(self.blob, self.meta, options, is_checked=True)
        release_pages(artifact.payload)  # most engines hold their own copy of the weights now


def _make(piece: Piece, target: Target, options: Options, *, anew: bool = False) -> _Made:
    """Build an island, or read it from the disk cache; rebuild it if the entry does not load."""
    built = build_or_read(piece.island, target, options, anew=anew)
    try:
        return _Made(piece, built, target, options)
    except Exception as error:  # a device's loader may raise anything
        if not built.found:
            raise
        _log.warning("the cache entry of %s does not load and is rebuilt: %s", piece.island.name, error)
        return _Made(piece, build_or_read(piece.island, target, options, anew=True), target, options)


def _build_all(
    plan: Plan, target: Target, options: Options
) -> tuple[dict[int, _Made], list[tuple[Piece, Verdict]]]:
    made: dict[int, _Made] = {}
    failed: list[tuple[Piece, Verdict]] = []
    for level, piece in plan.pieces.items():
        try:
            made[level] = _make(piece, target, options)
        except subprocess.TimeoutExpired:
            raise  # the caller who set the limit should see it
        except Exception as error:  # noqa: BLE001  # a device's compiler may raise anything
            _log.info("%s cannot be built: %s", piece.island.name, error)
            failed.append((piece, Verdict(False, "build_failed", one_line(error))))
    return made, failed


def _inputs_to_try(source: Source, planner: Planner) -> list[tuple[torch.Tensor, ...]]:
    """Return the inputs that islands are tried on, the example inputs first."""
    if source.sizes is None:
        return [source.leaves]
    return source.sizes.inputs_to_try(planner.graph.graph_module, source.leaves)


def _values(
    planner: Planner, plan: Plan, tried: Sequence[Sequence[torch.Tensor]]
) -> list[dict[fx.Node, object]]:
    wanted = {node for piece in plan.pieces.values() for node in (*piece.inputs, *piece.outputs)}
    return _references(planner, wanted, tried)


def _references(
    planner: Planner, wanted: set[fx.Node], tried: Sequence[Sequence[torch.Tensor]]
) -> list[dict[fx.Node, object]]:
    """Return what eager torch computes for the inputs; those of other sizes than the examples may fail.

    Some sizes occur only together, or only with other values, such as smaller indices.
    """
    example, *made_up = tried
    values = [reference_values(planner.graph.graph_module, example, wanted)]
    for leaves in made_up:
        try:
            values.append(reference_values(planner.graph.graph_module, leaves, wanted))
        except Exception as error:  # noqa: BLE001  # an op may raise anything
            sizes = ", ".join(str(list(leaf.shape)) for leaf in leaves)
            _log.info("islands are not tried on inputs of %s: eager torch raises %s", sizes, one_line(error))
    return values


def _everything(planner: Planner) -> set[fx.Node]:
    return set(planner.graph.graph_module.graph.nodes)


def _rebuild_and_try(
    plan: Plan,
    made: dict[int, _Made],
    failed: list[tuple[Piece, Verdict]],
    values: list[dict[fx.Node, object]],
    target: Target,
    options: Options,
    low_precision: bool,
) -> list[tuple[Piece, Verdict]]:
    """Rebuild failed islands that came from the cache, which may be at fault; return what still fails."""
    pieces = [piece for piece, _ in failed]
    again = {level: piece for level, piece in plan.pieces.items() if piece in pieces and made[level].found}
    for level, piece in again.items():
        _log.warning("the cache entry of %s is wrong and is rebuilt", piece.island.name)
        made[level] = _make(piece, target, options, anew=True)
    kept = [(piece, verdict) for piece, verdict in failed if piece not in again.values()]
    return kept + _try_all(again, made, values, low_precision)


def _try_all(
    pieces: Mapping[int, Piece],
    made: dict[int, _Made],
    values: list[dict[fx.Node, object]],
    low_precision: bool,
) -> list[tuple[Piece, Verdict]]:
    """Run each island on each set of inputs; return those that fail or differ on any."""
    failed = []
    for level, piece in pieces.items():
        for known in values:
            problem = _try_one(piece, made[level], known, low_precision, is_made_up=known is not values[0])
            if problem is not None:
                failed.append((piece, problem))
                break
    return failed


def _try_one(
    piece: Piece, made: _Made, values: dict[fx.Node, object], low_precision: bool, *, is_made_up: bool
) -> Verdict | None:
    # The verdicts guarantee that these are tensors.
    arguments = cast("list[torch.Tensor]", [values[node] for node in piece.inputs])
    expected = cast("list[torch.Tensor]", [values[node] for node in piece.outputs])
    try:
        with torch.no_grad():
            actual = made.island(arguments)
    except OutOfRange as error:
        # A call with these inputs runs on the host; with the example inputs, an island should not give NaN.
        if is_made_up or not isinstance(error, GaveNaN):
            return None
        actual = error.results
    except Exception as error:  # noqa: BLE001  # a device may raise anything
        return Verdict(False, "build_failed", one_line(error))
    problem = island_difference(
        piece.island, arguments, actual, expected, low_precision=low_precision, whole=True
    )
    if not problem:
        return None
    _log.info("%s differs from eager torch: %s", piece.island.name, problem)
    detail = f"the island differs from eager torch on the example inputs: {problem}"
    return Verdict(False, "inaccurate", detail)


def _time_all(
    pieces: Mapping[int, Piece],
    made: dict[int, _Made],
    values: dict[fx.Node, object],
    target: Target,
    options: Options,
    compiled_for: float,
) -> dict[fx.Node, Verdict]:
    """Return the ops to keep on the host because their islands are slower than eager torch."""
    share = compiled_for / len(pieces)
    found: dict[fx.Node, Verdict] = {}
    for level, piece in pieces.items():
        found |= find_slow_ops(piece, made[level].island, made[level].key, target, options, values, share)
    return found


def _blame(
    planner: Planner,
    piece: Piece,
    verdict: Verdict,
    target: Target,
    options: Options,
    values: list[dict[fx.Node, object]],
) -> None:
    """Keep the ops that fail on their own on the host; if none does, the whole island."""
    culprits: dict[fx.Node, Verdict] = {}
    for known in values:
        culprits = culprits or find_culprits(
            piece, target, options, known, planner.alone, ignore_values=verdict.reason == "build_failed"
        )
    for node, problem in (culprits or dict.fromkeys(piece.ops, verdict)).items():
        planner.force(node, problem)


def _program(
    source: Source, plan: Plan, made: dict[int, _Made], target: Target, options: Options
) -> RunnableProgram:
    built = {level: (island.blob, island.meta) for level, island in made.items()}
    graph_module = host_graph(plan.graph, plan.cut, plan.pieces, built)
    outputs = [value.meta["val"] for value in plan.graph.returned if isinstance(value, fx.Node)]
    record = ProgramRecord(
        model=source.name,
        target=target.name,
        options=target.options_json(options),
        inputs=_inputs(source),
        outputs={
            path: spec_of(value)
            for path, value in zip(source.result.paths, outputs, strict=False)
            if isinstance(value, torch.Tensor)
        },
        islands=tuple(island.record for island in made.values()),
        frozen=tuple(sorted({weight.name for weight in plan.graph.weights.values()})),
        mutated=_written_names(plan, source.paths),
        coverage=plan.coverage,
        versions=versions(target),
    )
    written = {str(node.target) for node in plan.graph.writes}
    read = [weight.tensor for name, weight in plan.graph.weights.items() if name not in written]
    return RunnableProgram(record, graph_module, source.result, weights=read)


def _inputs(source: Source) -> dict[str, TensorSpec]:
    """Return the specs of a program's input tensors; an open size is -1."""
    specs = [spec_of(leaf) for leaf in source.leaves]
    if source.sizes is not None:
        specs = [
            replace(spec, shape=tuple(size if isinstance(size, int) else -1 for size in sizes))
            for spec, sizes in zip(specs, source.sizes.inputs, strict=True)
        ]
    return dict(zip(source.paths, specs, strict=True))


def _written_names(plan: Plan, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the buffers, and the paths of the inputs, that a program writes to."""
    inputs = [node for node in plan.graph.graph_module.graph.nodes if node.op == "placeholder"]
    names = dict(zip(inputs, paths, strict=True))
    for node in plan.graph.writes:
        weight = plan.graph.weights.get(str(node.target))
        names.setdefault(node, node.name if weight is None else weight.name)
    return tuple(names[node] for node in plan.graph.writes)


def versions(target: Target) -> dict[str, str]:
    """Return the versions that a built island depends on."""
    return {"torchport": __version__, "torch": torch.__version__, target.name: target.version()}

"""A compiled program → files that run without torchport; also estimates its time on a simulated device."""

from __future__ import annotations

import operator
from pathlib import Path

import torch

from torchport.compiler.specialise import Specialised
from torchport.errors import CompileError
from torchport.records import IslandMeta, write_files
from torchport.runtime.runnable_program import RunnableProgram
from torchport.targets import Artifact, Options, Target


def emit_program(specialised: Specialised, target: Target, options: Options, path: Path) -> list[Path]:
    """Write a program that consists of one island as a program for the target.

    Raises:
        CompileError: it is more than one island.
        TargetError: the target cannot write programs.
    """
    program = specialised.program
    record, call = _only_island(program)
    placeholders = [node for node in program.graph_module.graph.nodes if node.op == "placeholder"]
    leaves = dict(zip(placeholders, specialised.examples, strict=True))
    sources = call.args[2]
    assert isinstance(sources, (list, tuple))
    if any(source not in leaves for source in sources):
        raise CompileError(
            "an island reads a buffer that the model writes, which no single program can keep",
            where=program.record.model,
        )
    takes = sorted(range(len(sources)), key=lambda place: placeholders.index(sources[place]))
    files = target.emit(
        _artifact(program, record), [leaves[sources[place]] for place in takes], options,
        program.record.model, path.stem, takes=takes, gives=_gives(program, call),
    )  # fmt: skip
    contents = {path.with_name(name): content for name, content in files.items()}
    write_files(contents)
    return list(contents)


def _gives(program: RunnableProgram, call: torch.fx.Node) -> list[int]:
    """Return the indices of the island's outputs, in the order of the model's results.

    Results that are unchanged inputs or weights are not outputs of the island.
    """
    results = program.graph_module.graph.output_node().args[0]
    assert isinstance(results, (list, tuple))
    taken = [node for node in results if isinstance(node, torch.fx.Node) and node.args[:1] == (call,)]
    places = [node.args[1] for node in taken if node.target is operator.getitem]
    assert len(set(places)) == len(program.record.islands[0].outputs), "an output is no result"
    return places  # type: ignore[return-value]  # an item's place


def _only_island(program: RunnableProgram) -> tuple[IslandMeta, torch.fx.Node]:
    calls = [
        node for node in program.graph_module.graph.nodes if node.target is torch.ops.torchport.island.default
    ]
    coverage = program.record.coverage
    if len(calls) == 1 and coverage.complete and not program.record.mutated:
        return program.record.islands[0], calls[0]
    stays = sorted({row.op for row in coverage.stayed})
    raise CompileError(
        f"no single program covers the model: {len(calls)} islands, {coverage.ops_remain} ops on the host "
        f"({', '.join(stays) or 'none'}), {len(program.record.mutated)} buffers or inputs written",
        where=program.record.model,
        remedy="torchport explain shows why each op stays",
    )


def _artifact(program: RunnableProgram, record: IslandMeta) -> Artifact:
    blob = getattr(program.graph_module, record.name)
    return Artifact(blob.numpy(), record.properties)


def simulated_seconds(specialised: Specialised, target: Target, options: Options) -> float | None:
    """Return the sum of the time estimates of a program's islands; None if they run on a real device."""
    program = specialised.program
    found = [
        target.simulated_seconds(_artifact(program, record), options) for record in program.record.islands
    ]
    times = [seconds for seconds in found if seconds is not None]
    return sum(times) if times else None

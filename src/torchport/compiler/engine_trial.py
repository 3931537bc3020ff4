"""The process that tries one engine on one model: builds it, compares it with eager torch, and times it.

python -m torchport.compiler.engine_trial FOLDER

The caller creates the folder, next to the model; see `engine_choice.py`. The results are written there, eager
torch's first, since an engine may crash the process at any time.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from torchport import targets
from torchport.capture import CapturedModel, ModuleState, SharedResult
from torchport.compiler.build import Source, build_program
from torchport.compiler.engine_choice import FOUND, FOUND_EAGER, INPUTS, PROGRAM, REQUEST
from torchport.compiler.engine_processes import Turn
from torchport.compiler.island_trial import difference
from torchport.compiler.normalise import is_op, normalise
from torchport.compiler.speed_trial import before_timing, seconds_of
from torchport.compiler.timing import time_in_turns
from torchport.errors import TorchportError, one_line
from torchport.records import EAGER, Coverage, EngineTry, parse_object, write_record
from torchport.runtime.runnable_program import RunnableProgram
from torchport.structure import flatten_call
from torchport.structure.flatten import flatten_result
from torchport.targets import Options, Target
from torchport.targets.child_process import end_with_caller, resident_bytes
from torchport.targets.heap import return_free_memory
from torchport.torch_private import tree_leaves
from torchport.verification import compare
from torchport.zoo.torchvision_ops import ensure_torchvision_ops

# Runs the model on its inputs' tensors, and returns its results' tensors.
Program = Callable[[list[torch.Tensor]], object]

_SECONDS = 2.0  # about how long two programs are timed,
_SHARE = 0.1  # or this share of the build time, if that is longer
_AT_A_TIME = 4  # concurrent calls when measuring throughput
_ROUNDS = 3


def main(folder: Path) -> int:
    """Try the engine that the folder's request names, and write the result, or what it raises, there."""
    end_with_caller(folder.parent)  # which also holds the model
    request: Mapping[str, Any] = parse_object((folder / REQUEST).read_bytes(), REQUEST)
    row = EngineTry(request["engine"], "failed")
    try:
        row = _try(request, folder)
    except MemoryError as error:
        row = replace(row, status="memory", reason=f"it ran out of memory: {error}")
    except TorchportError as error:
        row = replace(row, status="refused", reason=str(error))
    except Exception as error:  # noqa: BLE001  # an engine may raise anything
        row = replace(row, reason=one_line(error))
    write_record(row, folder / FOUND)
    return 0


def _try(request: Mapping[str, Any], folder: Path) -> EngineTry:
    torch.set_num_threads(request["threads"])
    trial = _Trial(request, folder)
    eager = trial.eager()
    expected = trial.call(eager)
    held = trial.held()
    taken = [trial.seconds(eager) for _ in range(_ROUNDS)]
    measured = EngineTry(
        EAGER,
        "ok",
        seconds=statistics.median(taken),
        fastest=min(taken),
        pcc=1.0,
        max_absolute=0.0,
        build_seconds=0.0,
        memory_bytes=max(0, held - trial.held_before),
        transfers=0,
        ops=trial.ops,
        ops_taken=0,
    )
    write_record(measured, folder / FOUND_EAGER)
    engine = targets.find_engine(request["engine"])
    there = engine.availability()
    if not there.ok:
        return EngineTry(engine.name, "refused", reason=f"{there.detail}; {there.remedy}".rstrip("; "))
    options = engine.make_options(request["options"])
    turn = Turn(folder)
    began = time.perf_counter()
    with before_timing(turn.wait):
        program = trial.program(engine, options)
    actual = trial.call(program.run)
    built = time.perf_counter() - began - turn.waited
    coverage = program.record.coverage
    row = EngineTry(
        engine.name,
        "ok",
        build_seconds=built,
        transfers=coverage.transfers,
        ops=coverage.ops_before,
        ops_taken=coverage.ops_before - coverage.ops_remain,
    )
    if not coverage.islands:
        return replace(row, status="refused", reason=_why_nothing(coverage))
    found = compare(actual, expected)
    row = replace(row, pcc=found.pcc, max_absolute=found.max_absolute)
    low_precision = engine.is_low_precision(options) or any(leaf.is_cuda for leaf in trial.leaves)
    problem = difference(actual, expected, low_precision=low_precision, whole=True) if not found.ok else ""
    if problem:
        return replace(row, status="wrong", reason=f"differs from eager torch: {problem}")
    turn.wait()
    own, its = trial.time(program.run, eager, built)
    return replace(
        row,
        seconds=statistics.median(own),
        eager_seconds=statistics.median(its),
        fastest=min(own),
        eager_fastest=min(its),
        memory_bytes=max(0, trial.held() - held + (measured.memory_bytes or 0)),
    )


def _why_nothing(coverage: Coverage) -> str:
    """Return why an engine takes no op of a model: the most telling reason."""
    if not coverage.stayed:
        return "there is no op that it could take"
    # Reasons found by trying are more telling than those known before.
    tried = [row for row in coverage.stayed if row.reason in ("slower", "inaccurate", "build_failed")]
    first = (tried or list(coverage.stayed))[0]
    return f"it takes no op of the model; {first.reason}: {first.detail}"


class _Trial:
    """The model as the caller captured it, with its inputs.

    Args:
        request: what to try, and how.
        folder: the trial's folder, next to the model.
    """

    def __init__(self, request: Mapping[str, Any], folder: Path) -> None:
        _import_libraries(request["namespaces"])
        self._objective = request["objective"]
        self._name = request["model"]
        self._program = torch.export.load(folder.parent / PROGRAM)
        self._shared = tuple(
            SharedResult(**{**item, "size": tuple(item["size"]), "stride": tuple(item["stride"])})
            for item in request["shared"]
        )
        kept = torch.load(folder.parent / INPUTS, weights_only=True)
        self.leaves: tuple[torch.Tensor, ...] = tuple(kept)
        self.held_before = self.held()

    @property
    def ops(self) -> int:
        """How many ops the captured model has."""
        return sum(map(is_op, self._program.graph.nodes))

    def eager(self) -> Program:
        """Return the captured graph without decompositions, which would take seconds."""
        module = self._program.module(check_guards=False)

        def run(leaves: list[torch.Tensor]) -> tuple[object, ...]:
            with torch.no_grad():
                return tuple(tree_leaves(module.forward(*leaves)))  # without the hooks that check inputs

        return run

    def program(self, target: Target, options: Options) -> RunnableProgram:
        """Compile the model."""
        flat = flatten_call(self.leaves, {})
        result = flatten_result(
            tuple(torch.zeros(()) for _ in self._program.graph_signature.user_outputs), (), (), flat.structure
        ).structure
        captured = CapturedModel(
            self._name,
            nn.Module(),
            self._program,
            self.leaves,
            flat.structure,
            result,
            ModuleState(nn.Module()),
            self._shared,
        )
        graph = normalise(captured, target)
        source = Source(self._name, graph, self.leaves, flat.structure.paths, result)
        return build_program(source, target, options)[0]

    def call(self, program: Program) -> list[torch.Tensor]:
        """Run a program once, on copies of the inputs, with the same random seed each time."""
        torch.manual_seed(0)
        outputs = program([leaf.clone() for leaf in self.leaves])
        assert isinstance(outputs, tuple)
        return [item.clone() for item in outputs if isinstance(item, torch.Tensor)]

    def seconds(self, program: Program) -> float:
        """Run a program once and return how long it took."""
        leaves = [leaf.clone() for leaf in self.leaves]
        return seconds_of(lambda: program(leaves))

    def time(self, program: Program, eager: Program, built: float) -> tuple[list[float], list[float]]:
        """Return the times of calls of a program and of eager torch, timed in turns."""
        if self._objective == "throughput":
            rounds = [(self._concurrent(program), self._concurrent(eager)) for _ in range(_ROUNDS)]
            return [own for own, _ in rounds], [its for _, its in rounds]
        return time_in_turns(
            lambda: self.seconds(program),
            lambda: self.seconds(eager),
            warmup=2,
            budget=max(_SECONDS, _SHARE * built),
        )

    def _concurrent(self, program: Program) -> float:
        """Return the mean time of a call when several threads call concurrently."""
        at_a_time = min(_AT_A_TIME, os.cpu_count() or 1)
        calls = 4 * at_a_time
        with ThreadPoolExecutor(at_a_time) as pool:
            list(pool.map(lambda _: self.seconds(program), range(at_a_time)))  # warm up each thread
            began = time.perf_counter()
            list(pool.map(lambda _: self.seconds(program), range(calls)))
            return (time.perf_counter() - began) / calls

    def held(self) -> int:
        """Return how many bytes this process holds, including on a GPU."""
        gc.collect()
        return_free_memory()
        try:
            held = resident_bytes()
        except (OSError, ValueError):  # not Linux
            held = 0
        return held + (torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0)


def _import_libraries(names: Sequence[str]) -> None:
    """Import the libraries whose ops the model calls, as the caller did."""
    for name in names:
        if name == "torchvision":
            ensure_torchvision_ops()
        with contextlib.suppress(ImportError):  # an op's namespace need not be a library's name
            importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

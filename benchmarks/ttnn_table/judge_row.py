"""Checks a row's programs with Tenstorrent's own library and a mock chip; nothing is computed."""

from __future__ import annotations

import gc
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from models import BROKEN, GENERATING, load_to_run, options_of
from rows import Judged
from torch import fx, nn
from train_row import graphs_of_training

from torchport import capture, targets
from torchport.compiler.inference_graph import InferenceGraph
from torchport.compiler.normalise import NormalGraph, normalise
from torchport.compiler.plan import Planner
from torchport.compiler.training_graph import normal_graph
from torchport.errors import one_line
from torchport.generation.make_generation import make_generation
from torchport.structure import tensors_in
from torchport.targets.ttnn.emit import emit
from torchport.targets.ttnn.target import TtnnTarget
from torchport.targets.ttnn.ttnn_program import TtnnProgram
from torchport.targets.ttnn.write import STORED_IN, write_calls
from torchport.zoo.model import Model

sys.path.append(str(Path(__file__).parents[2] / "tests" / "targets" / "ttnn"))
from mock_chip import call_judge, environment  # the tests' own

_LIMIT = 3000  # seconds, which no row reaches: its processor time is limited first
_LONGEST = 200  # characters of a refusal


def has_mock_chip() -> bool:
    """Whether the interpreter with the real library has been built."""
    return (environment.folder() / "ready").exists()


def judge_row(name: str) -> Judged:
    """Judge one row; whatever a model raises is in the record."""
    try:
        programs = Programs(name, is_training=name.endswith("-train"))
        programs.add_row()
        gc.collect()  # the model
        with tempfile.TemporaryDirectory() as folder:
            folders = [
                _store(program, Path(folder) / str(place)) for place, program in enumerate(programs.written)
            ]
            found = call_judge.verdicts(folders, timeout=_LIMIT)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row is lost
        return Judged(name, error=one_line(error)[:_LONGEST])
    refusals = dict.fromkeys(line["refusal"][:_LONGEST] for line in found if not line["accepted"])
    return Judged(
        name,
        programs=len(found),
        accepted=sum(line["accepted"] for line in found),
        calls=sum(len(program.calls) for program in programs.written),
        refusals=tuple(" ".join(each.split()) for each in refusals),
    )


class Programs:
    """The programs of a row, as compiling it writes them.

    Args:
        name: the row's name.
        is_training: whether its graphs are those of a step of training.
    """

    def __init__(self, name: str, *, is_training: bool) -> None:
        target = targets.find_engine("ttnn")
        assert isinstance(target, TtnnTarget)
        self._name = name
        self._target = target
        self._options = target.make_options(options_of(name))
        self._is_training = is_training
        self.written: list[TtnnProgram] = []

    def add_row(self) -> None:
        """Write everything that the row's model is compiled to."""
        if self._is_training:
            for graph in graphs_of_training(self._name):
                self._add(normal_graph(graph))
            return
        model = load_to_run(self._name)
        with torch.no_grad():
            if self._name in BROKEN:
                torch.manual_seed(0)  # as when it is run
                torch.compile(model.module, backend=self._backend)(*model.args, **model.kwargs)
            elif self._name in GENERATING:
                self._generate(model)
            else:
                self._capture(model.module, model.args, model.kwargs)

    def _add(self, graph: NormalGraph) -> None:
        plan = Planner(self._name, graph, self._target, self._options).plan()
        for piece in plan.pieces.values():
            self.written.append(write_calls(piece.island, self._options)[0])

    def _capture(self, module: nn.Module, args: Sequence[object], kwargs: dict[str, Any]) -> None:
        self._add(normalise(capture.export(module, args, kwargs, name=self._name), self._target))

    def _backend(self, graph_module: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., object]:
        """Write one of Dynamo's graphs, and have eager torch run it: what follows depends on its values."""
        graph = InferenceGraph(graph_module, self._target, self._options)

        def call(*args: object) -> object:
            self._add(normalise(graph.capture_for(args), self._target))
            return graph_module(*args)

        return call

    def _generate(self, model: Model) -> None:
        """Write the calls of `generate`: the prompt, a step, and an encoder."""
        [prompt] = model.kwargs.values()
        original: Any = model.module
        written: set[object] = set()

        def compile_call(module: nn.Module, _: object) -> Callable[..., object]:
            def call(*args: object) -> object:
                shapes = [tuple(tensor.shape) for _, tensor in tensors_in(args)]
                if (key := (id(module), *shapes)) not in written:
                    written.add(key)
                    self._capture(module, args, {})
                return module(*args)

            return call

        length = GENERATING[model.name] + (1 if original.config.is_encoder_decoder else 0)
        length += prompt.shape[1] if prompt.dim() == 2 else 0
        generation = make_generation(original, compile_call, max_length=length, name=model.name)
        generation.generate(prompt, max_new_tokens=2, min_new_tokens=2, do_sample=False, num_beams=1)


def _store(program: TtnnProgram, folder: Path) -> Path:
    """Write a program and its script for the judge.

    Its weights and inputs are zeros: a mock chip computes nothing, and sees only shapes and dtypes.
    """
    weights = {
        weight.name: torch.zeros(weight.tensor.shape, dtype=STORED_IN[weight.tensor.dtype])
        for weight in program.weights
    }
    examples = [
        torch.zeros(each.host_shape, dtype=getattr(torch, each.host_dtype)) for each in program.inputs
    ]
    folder.mkdir()
    for name, data in emit(program, weights, examples, title="A row", stem="program").items():
        (folder / name).write_bytes(data)
    (folder / "program.json").write_text(json.dumps(program.to_json()), encoding="utf-8")
    return folder

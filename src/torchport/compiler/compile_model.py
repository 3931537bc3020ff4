"""`torchport.compile`: a model → a compiled model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from torchport import capture, targets
from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.engine_choice import check_engines, choose_engine, engine_options, keep_tries, rank
from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.generation_choice import capture_step, example_prompt, time_tokens
from torchport.compiler.kept_modules import check_kept_modules
from torchport.compiler.served_model import ServedModel
from torchport.compiler.specialise import Specialiser
from torchport.errors import CompileError
from torchport.generation import can_generate
from torchport.records import DEFAULT_TARGET, EAGER, EngineTry, Tries
from torchport.structure import call_arguments
from torchport.targets import Options, Target
from torchport.targets.auto import AutoOptions

_log = logging.getLogger(__name__)


def compile(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    target: str = DEFAULT_TARGET,
    dynamic_shapes: object = None,
    options: Mapping[str, object] | None = None,
    max_length: int | None = None,
    name: str = "",
) -> CompiledModel:
    """Compile a model for a target.

    Args:
        model: a module, or any callable on tensors. It is compiled in its current mode, training or eval.
        args, kwargs: example inputs of any class; the result of each island is checked on them.
        target: the target's name; `torchport targets` lists them. `auto` tries all that work here, and
            picks the fastest.
        dynamic_shapes: which dimensions may vary, in the format of `torch.export`. Other shapes are then
            refused, and one program serves all sizes if the target supports open sizes. Without it, any shape
            is accepted, and each new one is compiled when it first occurs.
        options: the target's options.
        max_length: for a model that generates, the maximum number of tokens in a sequence in `generate`,
            prompt and new tokens together; 512 by default. Where caches cannot grow, every step attends over
            all of them, so a larger limit costs time.
        name: the model's name in records and messages.

    Returns:
        A module that is called like the model and returns what it returns. For a transformers model that
        generates, it has `generate`, and is compiled on first use; for `auto`, at once.

    Raises:
        CaptureError: the model raises, or depends on its data in a way that a graph cannot express.
        TargetError: there is no such target, option or device.

    Example:
        >>> model = torch.nn.Linear(2, 3).eval()
        >>> compiled = compile(model, (torch.ones(1, 2),), target="host")
        >>> torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
        True
    """
    found = targets.find(target)
    chosen = found.make_options(options)
    check_kept_modules(model, chosen, name)
    args, named = call_arguments(args, kwargs)
    request = _Request(model, args, named, dynamic_shapes, max_length, name)
    if not isinstance(chosen, AutoOptions):
        return _compile_for(found, chosen, request)
    check_engines(chosen)
    if chosen.serve_eager_while_building:
        if can_generate(model):
            raise CompileError(
                "a model that generates is compiled on first use, so eager torch cannot serve it meanwhile",
                where=name,
                remedy="leave out serve_eager_while_building",
            )
        specialiser = Specialiser(model, found, chosen, name)
        return ServedModel(specialiser, args, request.kwargs, lambda: _compile_best(chosen, request))
    return _compile_best(chosen, request)


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of `compile` other than the target and its options."""

    model: nn.Module | Callable[..., object]
    args: Sequence[object]
    kwargs: dict[str, object]
    dynamic_shapes: object
    max_length: int | None
    name: str

    @property
    def generates(self) -> bool:
        """Whether the compiled model will have `generate`."""
        return self.dynamic_shapes is None and can_generate(self.model)


def _compile_for(
    target: Target, options: Options, request: _Request, captured: capture.CapturedModel | None = None
) -> CompiledModel:
    specialiser = Specialiser(request.model, target, options, request.name)
    if request.generates:
        if request.max_length is not None and request.max_length < 1:
            raise CompileError("max_length must be at least 1", where=specialiser.name)
        target.check_ready(options)
        return GeneratingModel(specialiser, request.args, request.kwargs, max_length=request.max_length)
    if request.max_length is not None:
        raise CompileError(
            "max_length is for a model that generates, and this one does not",
            where=specialiser.name,
            remedy="leave it out",
        )
    return CompiledModel(specialiser, request.args, request.kwargs, request.dynamic_shapes, captured=captured)


def _compile_best(options: AutoOptions, request: _Request) -> CompiledModel:
    """Compile for the engine that measured best; if it fails here after all, for the next best."""
    auto = targets.find("auto")
    specialiser = Specialiser(request.model, auto, options, request.name)
    step = None
    if request.generates:
        prompt = example_prompt(request.model, request.args, request.kwargs)
        step = capture_step(request.model, prompt, request.max_length, auto, options, specialiser.name)
    captured = step or specialiser.capture_for(request.args, request.kwargs)
    tries = choose_engine(captured, options)
    compiled: dict[str, CompiledModel] = {}
    failed: set[str] = set()
    while True:
        # Eager torch is always among the ranked rows.
        row = next(each for each in rank(tries.rows, options.objective) if each.engine not in failed)
        try:
            if row.engine not in compiled:
                compiled = {row.engine: _compile_chosen(row, tries, options, request, captured)}
            if step is not None and row.engine != EAGER and _is_to_generate(row, options):
                tries = _with_generation(tries, row, compiled[row.engine], request)
                keep_tries(captured, options, tries)
                continue
        except Exception as error:  # an engine may raise anything
            if row.engine == EAGER:
                raise
            _log.warning("%s succeeded in its trial and fails in this process: %s", row.engine, error)
            failed.add(row.engine)
            continue
        compiled[row.engine].keep_tries(replace(tries, chosen=row.engine))
        return compiled[row.engine]


def _compile_chosen(
    row: EngineTry, tries: Tries, options: AutoOptions, request: _Request, captured: capture.CapturedModel
) -> CompiledModel:
    target: Target = targets.find("auto" if row.engine == EAGER else row.engine)
    own = options if row.engine == EAGER else target.make_options(engine_options(options, tries))
    return _compile_for(target, own, request, captured)


def _is_to_generate(row: EngineTry, options: AutoOptions) -> bool:
    """Whether an engine's speed of generating is still to be measured."""
    return row.unit == "call" and options.objective == "latency"


def _with_generation(tries: Tries, row: EngineTry, compiled: CompiledModel, request: _Request) -> Tries:
    """Return the tries with an engine's measured time per token, ranked again."""
    prompt = example_prompt(request.model, request.args, request.kwargs)
    timed = time_tokens(row, compiled, request.model, prompt, request.max_length)
    _log.info("%s on %s: a token takes %.3g times eager torch's", tries.model, row.engine, timed.ratio)
    rows = tuple(timed if each is row else each for each in tries.rows)
    return replace(tries, rows=rows, chosen=rank(rows, tries.objective)[0].engine)

"""`torchport.compile`: a model → a compiled model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from torchport import targets
from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.kept_modules import check_kept_modules
from torchport.compiler.specialise import Specialiser
from torchport.errors import CompileError
from torchport.generation import can_generate
from torchport.records import DEFAULT_TARGET


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
        model: a module, or any callable on tensors. It is compiled in the mode that it is in.
        args, kwargs: example inputs of any class; the result of each island is checked on them.
        target: the target's name; `torchport targets` lists them.
        dynamic_shapes: which dimensions may vary, as `torch.export` takes it. Other shapes are then
            refused. Without it, any shape is taken, and each new one is compiled when it first comes.
        options: the target's options.
        max_length: of a model that generates: how many tokens a sequence may have in `generate`, prompt and
            new ones together; 512 unless given. A step looks at all of them, so that more cost time.
        name: the model's name in records and messages.

    Returns:
        A module that is called as the model is, and returns what it returns. That of a model of transformers'
        which generates has `generate`, and is compiled when it is first used.

    Raises:
        CaptureError: the model raises, or depends on its data in a way that a graph cannot show.
        TargetError: no such target, option or device.

    Example:
        >>> model = torch.nn.Linear(2, 3).eval()
        >>> compiled = compile(model, (torch.ones(1, 2),), target="host")
        >>> torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
        True
    """
    found = targets.find(target)
    chosen = found.make_options(options)
    check_kept_modules(model, chosen, name)
    specialiser = Specialiser(model, found, chosen, name)
    if dynamic_shapes is None and can_generate(model):
        if max_length is not None and max_length < 1:
            raise CompileError("max_length must be at least 1", where=specialiser.name)
        found.check_ready(chosen)
        return GeneratingModel(specialiser, args, dict(kwargs or {}), max_length=max_length)
    if max_length is not None:
        raise CompileError(
            "max_length is for a model that generates, and this one does not",
            where=specialiser.name,
            remedy="leave it out",
        )
    return CompiledModel(specialiser, args, dict(kwargs or {}), dynamic_shapes)

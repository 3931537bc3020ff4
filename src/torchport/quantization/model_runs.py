"""Runs the caller's model without changing it or torch's random state, and reports which item fails."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import torch
from torch import nn

from torchport.capture import StandIn, copy_of, quiet_torch
from torchport.errors import QuantizationError, TorchportError, one_line
from torchport.generation import is_cache
from torchport.structure import flatten

NO_LABELS = "give only the model's inputs, no labels"


def check_evaluating(model: nn.Module, name: str) -> None:
    """Reject a model with any module in training mode: its dropouts and norms would behave differently.

    Raises:
        QuantizationError: names the module.
    """
    for path, module in model.named_modules():
        if module.training:
            raise QuantizationError(
                f"{f'its module {path}' if path else 'the model'} is in training mode",
                where=name,
                remedy="call model.eval() first",
            )


# The attributes of hooks that run around a module's forward.
_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


def copy_model(model: nn.Module, replaced: Mapping[str, nn.Module] = MappingProxyType({})) -> nn.Module:
    """Return a copy of a model, with some modules replaced.

    Every reference to an original module is replaced, also in lists, and the new module gets its hooks.

    Args:
        model: the model.
        replaced: the new modules, by the paths of the modules that they replace.

    Raises:
        QuantizationError: it cannot be copied.
    """
    # Tensors with a grad_fn, left by an earlier call, which torch refuses to deep-copy.
    memo: dict[int, object] = {
        id(value): value.detach().clone()
        for module in model.modules()
        for value in (*vars(module).values(), *module._buffers.values())
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    made = [(model.get_submodule(path), copy.copy(module)) for path, module in replaced.items()]
    memo |= {id(old): new for old, new in made}
    try:
        with quiet_torch():
            result = copy.deepcopy(model, memo)
            for old, new in made:
                for name in _HOOKS:
                    setattr(new, name, copy.deepcopy(getattr(old, name), memo))
    except Exception as error:  # a model may hold anything
        raise QuantizationError(
            f"the model cannot be copied: {one_line(error)}",
            where=type(model).__name__,
            remedy="make sure that copy.deepcopy(model) works",
        ) from error
    return result


def stand_in(model: nn.Module) -> nn.Module:
    """Return a stand-in for a model that shares its weights, but writes only to copies of its own."""
    # Of torch's own modules, embeddings with max_norm write to their weight when they are called.
    written = {
        id(module.weight) for module in model.modules() if getattr(module, "max_norm", None) is not None
    }

    def shared(tensor: torch.Tensor) -> torch.Tensor:
        is_weight = isinstance(tensor, nn.Parameter) and id(tensor) not in written
        return tensor if is_weight else copy_of(tensor)

    return StandIn(model, shared).module


def call(model: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
    """Call a model without gradients, on copies of its inputs, which it may write to.

    The random state is restored afterwards, so that another model draws the same numbers.
    """
    args, kwargs = copy.deepcopy((args, kwargs))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        return model(*args, **kwargs)


def result_tensors(result: object) -> list[torch.Tensor]:
    """Return the tensors of a result, except those of KV caches, whose accuracy only affects later calls."""
    whole = flatten(result)
    caches = {id(each): None for each in whole.objects if is_cache(each)}
    return flatten(result, by_reference=caches).leaves if caches else whole.leaves


@contextmanager
def naming_failing_item(run: Callable[[int], object], items: Iterable[int], name: str) -> Iterator[None]:
    """If the body fails because the model fails on an item of the calibration data, report which one.

    Args:
        run: runs the model on an item.
        items: the items to try.
        name: the model's name.

    Raises:
        QuantizationError: the model raises on an item.
    """
    try:
        yield
    except TorchportError:
        raise
    except Exception:
        for index in items:
            try:
                run(index)
            except Exception as error:  # a model may raise anything
                raise QuantizationError(
                    f"the model raises on item {index} of the calibration data: {one_line(error)}",
                    where=name,
                    remedy=NO_LABELS,
                ) from error
        raise

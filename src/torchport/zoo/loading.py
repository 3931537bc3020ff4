"""Finds the source that a model's name refers to, and loads the model from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from torchport.errors import ZooError, nearest, one_line
from torchport.torch_private import tree_map_only
from torchport.zoo import hf_models, hf_small, timm_models, torchvision_models
from torchport.zoo.extras import is_installed
from torchport.zoo.meta_parameters import parameters_without_values
from torchport.zoo.model import Model
from torchport.zoo.random_weights import fixed_seed
from torchport.zoo.user_file import load_file, load_inputs


@dataclass(frozen=True, slots=True)
class Source:
    """A library that provides models.

    Args:
        library: the package that must be installed.
        load: loads a model by its name in the library; takes the keywords `weights` and `batch`.
        names: lists the names of its models.
    """

    library: str
    load: Callable[..., Model]
    names: Callable[[], list[str]]


SOURCES: Mapping[str, Source] = {
    torchvision_models.SCHEME: Source(
        "torchvision", torchvision_models.load_torchvision, torchvision_models.names
    ),
    timm_models.SCHEME: Source("timm", timm_models.load_timm, timm_models.names),
    hf_models.SCHEME: Source("transformers", hf_models.load_hf, hf_models.names),
    hf_small.SCHEME: Source(
        "transformers",
        lambda name, weights, batch: hf_small.load_small_hf(name, batch=batch),
        hf_small.small_hf_names,
    ),
    hf_small.LANGUAGE_SCHEME: Source(
        "transformers",
        lambda name, weights, batch: hf_small.load_small_language_model(name, batch=batch),
        hf_small.small_language_names,
    ),
}


def load(
    name: str,
    *,
    inputs: str | None = None,
    weights: bool = True,
    batch: int | None = None,
    device: str = "cpu",
) -> Model:
    """Load a model and example inputs to run it on.

    Args:
        name: where to find the model:
            `path/file.py::function`, a function that returns a module, (module, args), (module, args,
            kwargs) or a `Model`;
            `torchvision:NAME` or `timm:NAME`, a model of that library;
            `hf:NAME_OR_DIR`, a transformers model on the hub or in a folder with a `config.json`;
            `hf-small:MODEL_TYPE`, a transformers architecture in a small configuration, with random weights;
            `hf-small-lm:MODEL_TYPE`, the same with a language-model head.
        inputs: `path/file.py::function` that returns the inputs to use instead of generated ones: a tensor,
            a tuple or list of arguments, a dict of keyword arguments, or a pair of a tuple and a dict.
        weights: whether a library's model gets its pretrained weights. If False they are random, the same
            each time, and nothing is downloaded. A model from a file ignores this.
        batch: the batch size of a library model's inputs; 1 by default.
        device: the device of the module and the inputs. On `meta` they have shapes but no values, so that a
            model of any size can be analyzed.

    Returns:
        The model, in evaluation mode. The state of torch's global generator is preserved.

    Raises:
        ZooError: there is no such model, it cannot be loaded, its weights are unavailable (random ones are
            never substituted), or there are no inputs for it.

    Example:
        >>> model = load("torchvision:resnet18", weights=False)
        >>> model.module(*model.args).shape
        torch.Size([1, 1000])
    """
    if batch is not None and batch < 1:
        raise ZooError(f"the batch must be at least 1, not {batch}", where=name)
    if "::" in name or name.endswith(".py"):
        model = _load_file(name, inputs, batch, device)
    else:
        model = _load_library(name, inputs, weights, batch, device)
    model.module.eval()
    return _place(model, device)


def names(scheme: str) -> list[str]:
    """Return the models that a scheme knows by name, sorted.

    Args:
        scheme: `torchvision`, `timm`, `hf` (models that build without network), `hf-small` or `hf-small-lm`.

    Returns:
        The names; each is loaded as `scheme:name`.

    Raises:
        ZooError: there is no such scheme, or its library is not installed.

    Example:
        >>> "resnet18" in names("torchvision")
        True
    """
    return _source(scheme).names()


def _source(scheme: str) -> Source:
    if scheme not in SOURCES:
        raise ZooError(f"unknown model scheme {scheme!r}", remedy=nearest(scheme, SOURCES))
    return SOURCES[scheme]


def _load_file(name: str, inputs: str | None, batch: int | None, device: str) -> Model:
    if batch is not None:
        raise ZooError(
            "the batch size of a model from a file cannot be set",
            where=name,
            remedy="choose it in the function that returns the inputs",
        )
    with fixed_seed(), _building_on(device):
        return load_file(name, load_inputs(inputs) if inputs is not None else None)


def _load_library(name: str, inputs: str | None, weights: bool, batch: int | None, device: str) -> Model:
    scheme, separator, rest = name.partition(":")
    if not separator:
        raise ZooError(f"{name!r} does not say where the model is", remedy=_suggest(name))
    source = _source(scheme)
    if not rest:
        raise ZooError("the model's name is missing", where=name, remedy=f"write {scheme}:NAME")
    if device == "meta" and weights and scheme not in (hf_small.SCHEME, hf_small.LANGUAGE_SCHEME):
        raise ZooError(
            "on the meta device weights have no values",
            where=name,
            remedy="pass weights=False (--no-weights)",
        )
    # A small model is run to try out its inputs, which takes values.
    model = _build(source, rest, weights, batch or 1, "cpu" if scheme == hf_small.SCHEME else device, name)
    if inputs is None:
        return model
    with fixed_seed():
        given = load_inputs(inputs)
    return replace(model, args=given.args, kwargs=given.kwargs)


def _build(source: Source, rest: str, weights: bool, batch: int, device: str, name: str) -> Model:
    # Some models read tensor values while they are built, which fails on the meta device. Then only the
    # parameters are built there; if that fails too, the model is built with values and moved afterwards.
    ways: list[AbstractContextManager[object]] = [_building_on(device)]
    if device == "meta":
        ways += [parameters_without_values(), nullcontext()]
    refusal: Exception | None = None
    for way in ways:
        try:
            with way:
                return source.load(rest, weights=weights, batch=batch)
        except ZooError:
            raise
        except Exception as error:  # noqa: BLE001  # a library's model may fail in any way
            refusal = error
    assert refusal is not None
    raise ZooError(f"it cannot be built ({one_line(refusal)})", where=name) from refusal


def _building_on(device: str) -> torch.device | nullcontext[None]:
    # For other devices, models are built on the CPU and moved: a name gives the same weights on any device.
    return torch.device("meta") if device == "meta" else nullcontext()


def _place(model: Model, device: str) -> Model:
    if device == "cpu":
        return model
    args, kwargs = tree_map_only(Tensor, lambda tensor: tensor.to(device), (model.args, dict(model.kwargs)))
    return replace(model, module=model.module.to(device), args=args, kwargs=kwargs)


def _suggest(name: str) -> str:
    """Return advice for a name without a scheme: the schemes, and those in which the name exists."""
    forms = "write FILE.py::FUNCTION or SCHEME:NAME with one of " + ", ".join(SOURCES)
    found = [
        f"{scheme}:{name}"
        for scheme, source in SOURCES.items()
        if is_installed(source.library) and name in source.names()
    ]
    return f"{forms}; did you mean {' or '.join(map(repr, found))}?" if found else forms

"""Compiles an island or reads its compiled form, and runs it; on a GPU as one CUDA graph."""

from __future__ import annotations

import json
import logging
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch
from torch import fx

from torchport.errors import TargetError
from torchport.records import TensorSpec, digest_of
from torchport.targets.artifact_properties import check_format, read_number, refuse_property
from torchport.targets.folded_scales import CONVOLUTION, fold_scales
from torchport.targets.host.load import read_graph
from torchport.targets.host.load import weight_places as places_in_host
from torchport.targets.inductor.bounded_indices import bound_indices, indices_fit
from torchport.targets.inductor.compile import (
    WITHOUT_TRIAL,
    compile_graph,
    from_bytes,
    lift_weights,
    to_bytes,
)
from torchport.targets.inductor.cuda_graph import CudaGraph
from torchport.targets.inductor.direct_run import read as read_direct_form
from torchport.targets.inductor.format import FORMAT
from torchport.targets.inductor.options import InductorOptions
from torchport.targets.inductor.safe_ops import refuse_unsafe
from torchport.targets.machine import machine
from torchport.targets.seal import is_sealed, seal
from torchport.targets.target import Artifact, Meanwhile, OutOfRange, Runner

_log = logging.getLogger(__name__)

_RUNS = 20  # timed runs, to compare two layouts


def load(
    artifact: Artifact,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: InductorOptions,
) -> Runner:
    """Return a function that runs the island.

    Raises:
        TargetError: the artefact has another format, is for a missing device, has an op that is unsafe in
            compiled form, or inductor cannot compile it.
    """
    properties = artifact.properties
    device = properties.get("device")
    check_format(artifact.properties, FORMAT, "inductor")
    if device not in ("cpu", "cuda"):
        raise refuse_property("inductor", "device", device)
    if device == "cuda" and not torch.cuda.is_available():
        raise TargetError(
            "the island was built for a GPU, but torch finds none on this machine",
            where="inductor",
            remedy="compile the model on the CPU",
        )
    size = read_number(properties, "island_bytes", int(artifact.payload.size), "inductor")
    described = properties.get("island")
    if not isinstance(described, dict):
        raise refuse_property("inductor", "island", described)
    graph_module = read_graph(Artifact(artifact.payload[:size], described)).to(str(device))
    arguments = [_example(spec, str(device)) for spec in inputs]
    refuse_unsafe(graph_module, arguments)
    fold_scales(graph_module)
    is_bounded = device == "cpu" and bound_indices(graph_module, arguments)
    kept = _import(artifact, graph_module, options)
    # A compiled form from a package was compiled earlier, so it loads without evaluating the indices.
    has_trial = kept is not None or device == "cpu" or indices_fit(graph_module, arguments)
    made = kept or _compile(graph_module, arguments, options, str(device), has_trial=has_trial)
    return _Island(made, inputs, outputs, options, str(device), is_bounded=is_bounded, has_trial=has_trial)


def weight_places(artifact: Artifact) -> list[tuple[int, int]]:
    """Return where the graph's weights lie in the payload, as starts and lengths."""
    size = read_number(artifact.properties, "island_bytes", int(artifact.payload.size), "inductor")
    described = artifact.properties.get("island")
    if not isinstance(described, dict):
        raise refuse_property("inductor", "island", described)
    return places_in_host(Artifact(artifact.payload[:size], described))


def _example(spec: TensorSpec, device: str) -> torch.Tensor:
    return torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype), device=device)


class _Compiled:
    """A compiled graph with its weights."""

    def __init__(self, compiled: Any, weights: Sequence[torch.Tensor], channels_last: bool) -> None:
        self.compiled = compiled
        self.weights = weights
        self.channels_last = channels_last

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(self.compiled(*arguments, *self.weights))


def _compile(
    graph_module: fx.GraphModule,
    arguments: Sequence[torch.Tensor],
    options: InductorOptions,
    device: str,
    *,
    has_trial: bool,
) -> _Compiled:
    """Compile the graph in the requested layout; on a GPU, `auto` compiles both and takes the faster one.

    Args:
        graph_module: the graph.
        arguments: example tensors with its inputs' shapes and dtypes.
        options: the target's options.
        device: where it runs.
        has_trial: whether it may be run on these tensors; an out-of-bounds index makes a GPU unusable.
    """
    layouts = {"on": [True], "off": [False]}.get(options.channels_last, [False])
    if options.channels_last == "auto" and device == "cuda" and has_trial and _has_images(graph_module):
        layouts = [True, False]
    settings = {} if has_trial else WITHOUT_TRIAL
    made, refusal = [], TargetError("there is no layout", where="inductor")
    for channels_last in layouts:
        lifted, weights = _lifted(graph_module, channels_last)
        try:
            compiled = compile_graph(lifted, [*arguments, *weights], options, settings)
        except TargetError as error:  # the other layout may compile
            refusal = error
        else:
            made.append(_Compiled(compiled, weights, channels_last))
    if not made:
        raise refusal
    return made[0] if len(made) == 1 else min(made, key=lambda one: _seconds(one, arguments))


def _has_images(graph_module: fx.GraphModule) -> bool:
    """Whether channels-last is possible: it has convolutions, and no op depends on strides."""
    ops = {str(node.target) for node in graph_module.graph.nodes}
    return CONVOLUTION in ops and not any("as_strided" in op for op in ops)


def _lifted(graph_module: fx.GraphModule, channels_last: bool) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return the graph with its weights as inputs, and the weights in the requested layout."""
    lifted, weights = lift_weights(graph_module)
    places = [node for node in lifted.graph.nodes if node.op == "placeholder"]
    places = places[len(places) - len(weights) :]
    if not channels_last:
        return lifted, weights
    for node in lifted.graph.nodes:
        if node.target is torch.ops.aten.view.default:  # a view would need a contiguous tensor
            node.target = torch.ops.aten.reshape.default
    convolved = {node.args[1] for node in lifted.graph.nodes if str(node.target) == CONVOLUTION}
    return lifted, [
        weight.contiguous(memory_format=torch.channels_last)
        if place in convolved and weight.dim() == 4
        else weight
        for place, weight in zip(places, weights, strict=True)
    ]


@torch.no_grad()
def _seconds(made: _Compiled, arguments: Sequence[torch.Tensor]) -> float:
    call = CudaGraph(made)
    taken = []
    for _ in range(_RUNS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call(arguments)
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


class _Island:
    """A compiled island, safe to run from several threads at once."""

    def __init__(
        self,
        made: _Compiled,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: InductorOptions,
        device: str,
        *,
        is_bounded: bool,
        has_trial: bool,
    ) -> None:
        self.made = made
        self.has_trial = has_trial
        self._is_bounded = is_bounded
        self._specs = [(spec.shape, getattr(torch, spec.dtype)) for spec in inputs]
        self._outputs = [(spec.shape, getattr(torch, spec.dtype), not spec.order) for spec in outputs]
        self._device = torch.empty(0, device=device).device  # including its index
        self.device = device
        self._on_gpu = device == "cuda"
        self._call = CudaGraph(made) if self._on_gpu and options.cuda_graphs else made
        self._kept = {weight.untyped_storage().data_ptr() for weight in made.weights}

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        return self.run_overlapped(arguments, None)

    def examples(self) -> list[torch.Tensor]:
        """Return example inputs to test it with, followed by its weights."""
        made = [torch.zeros(shape, dtype=dtype, device=self._device) for shape, dtype in self._specs]
        return [*(each.uniform_() if each.is_floating_point() else each for each in made), *self.made.weights]

    @torch.no_grad()
    def run_overlapped(
        self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile | None
    ) -> list[torch.Tensor]:
        """Run the island once; `meanwhile` runs while a GPU computes, or before the island on a CPU."""
        if meanwhile is not None and not self._on_gpu:
            meanwhile()
        given = [argument.detach().contiguous().resolve_neg() for argument in arguments]
        for argument, (shape, dtype) in zip(given, self._specs, strict=True):
            if argument.device != self._device or argument.shape != shape or argument.dtype is not dtype:
                raise TargetError(
                    "an input's device, shape or dtype differs from what the island was compiled for",
                    where="inductor",
                )
        results = self._call(given)  # on a GPU it returns as soon as the work is queued
        if meanwhile is not None and self._on_gpu:
            meanwhile()
        if self._is_bounded and not results.pop():
            raise OutOfRange("an index is out of bounds")
        if len(results) != len(self._outputs):
            raise TargetError("the compiled island returned unexpected outputs", where="inductor")
        taken = self._kept | {argument.untyped_storage().data_ptr() for argument in given}
        for index, (shape, dtype, plain) in enumerate(self._outputs):
            result = results[index]
            if result.shape != shape or result.dtype is not dtype:
                raise TargetError("the compiled island returned unexpected outputs", where="inductor")
            address = result.untyped_storage().data_ptr()
            if address in taken:  # aliases an input, a weight or another result
                result = result.clone()
            results[index] = result.contiguous() if plain else result
            taken.add(results[index].untyped_storage().data_ptr())
        return results


def embed(artifact: Artifact, runner: Runner, options: InductorOptions) -> Artifact:
    """Return the artefact with inductor's own compiled form, sealed with the user's secret."""
    from torchport.targets.inductor.direct_write import to_direct_form  # only needed when saving

    assert isinstance(runner, _Island)
    if "compiled" in artifact.properties or not runner.has_trial:
        return artifact
    form = to_bytes(runner.made.compiled)
    if not form:
        return artifact
    direct = to_direct_form(runner.made.compiled, runner.examples(), runner.device)
    at = int(artifact.payload.size)
    payload = numpy.concatenate([artifact.payload, numpy.frombuffer(form + direct, dtype=numpy.uint8)])
    entry: dict[str, object] = {
        "at": at,
        "bytes": len(form),
        "direct_bytes": len(direct),
        "channels_last": runner.made.channels_last,
        "made_for": _made_for(options),
    }
    entry["seal"] = seal(_sealed_text(digest_of(payload.data), entry))
    return Artifact(payload, {**artifact.properties, "compiled": entry})


def _made_for(options: InductorOptions) -> dict[str, object]:
    return {
        "torch": torch.__version__,
        "python": sys.implementation.cache_tag,
        "cuda": torch.version.cuda,
        "machine": machine(),
        "max_autotune": options.max_autotune,
    }


def _sealed_text(digest: str, entry: Mapping[str, object]) -> str:
    facts = {key: entry.get(key) for key in ("at", "bytes", "direct_bytes", "channels_last", "made_for")}
    return json.dumps([digest, facts], sort_keys=True)


def _import(artifact: Artifact, graph_module: fx.GraphModule, options: InductorOptions) -> _Compiled | None:
    """Return the compiled form, if made for this machine by this user, or explicitly trusted."""
    entry = artifact.properties.get("compiled")
    if not isinstance(entry, Mapping) or entry.get("made_for") != _made_for(options):
        return None
    trusted = os.environ.get("TORCHPORT_TRUST_COMPILED_FORM") == "1"
    digest = artifact.digest or digest_of(artifact.payload.data)
    if not trusted and not is_sealed(_sealed_text(digest, entry), entry.get("seal")):
        _log.info("the compiled form was not made by this user, so the graph is compiled again")
        return None
    total = int(artifact.payload.size)
    at = read_number(entry, "at", total, "inductor")
    middle = at + read_number(entry, "bytes", total - at, "inductor")
    end = middle + read_number(entry, "direct_bytes", total - middle, "inductor")
    channels_last = entry.get("channels_last") is True
    _, weights = _lifted(graph_module, channels_last)
    if end > middle:
        try:
            program = read_direct_form(artifact.payload[middle:end].tobytes())
            return _Compiled(program, weights, channels_last)
        except TargetError as error:
            _log.warning("running the compiled form needs inductor: %s", error)
    try:
        return _Compiled(from_bytes(artifact.payload[at:middle].tobytes()), weights, channels_last)
    except TargetError as error:
        _log.warning("the compiled form cannot be used, so the graph is compiled again: %s", error)
        return None

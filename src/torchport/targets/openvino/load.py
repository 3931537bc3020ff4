"""Loads a built island into OpenVINO and runs it on torch's own memory, without copies."""

from __future__ import annotations

import collections
import logging
import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch

from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.artifact_properties import check_format, read_number, refuse_property
from torchport.targets.huge_pages import WORTHWHILE, TakenMemory
from torchport.targets.mapped_payload import release_pages
from torchport.targets.open_sizes import OUTPUT_SIZES, output_shapes
from torchport.targets.openvino.channel_scales import are_taken_for_one, part_channel_scales
from torchport.targets.openvino.compiled_form import (
    WITHOUT_WEIGHTS,
    add_compiled,
    can_import,
    import_compiled,
)
from torchport.targets.openvino.format import FORMAT, Bytes, Properties, read_properties, unpack
from torchport.targets.openvino.half_products import AS_WRITTEN, write_half_products
from torchport.targets.openvino.half_weights import compute_in_float32, computes_halves, has_bfloat16
from torchport.targets.openvino.held_caches import AS_GIVEN, HeldCaches, hold_caches
from torchport.targets.openvino.ir_check import MOST_XML, check_ir
from torchport.targets.openvino.library import core, element_types, openvino
from torchport.targets.openvino.merged_kernels import (
    WITHOUT_MERGED_KERNELS,
    is_added_to,
    is_slower_merged,
)
from torchport.targets.openvino.options import PRECISIONS, OpenVinoOptions
from torchport.targets.openvino.request import Request, all_in_memory
from torchport.targets.openvino.single_axis import mend_for_arm
from torchport.targets.openvino.wide_weights import widen_weights
from torchport.targets.openvino.written_attention import write_attention
from torchport.targets.target import Artifact, Meanwhile, Runner

_log = logging.getLogger(__name__)

# As OpenVINO writes a constant's attributes.
_CONSTANT = re.compile(rb'<data [^>]*offset="([0-9]{1,18})"[^>]* size="([0-9]{1,18})"')
_PRECISION = "INFERENCE_PRECISION_HINT"


def load(
    artifact: Artifact,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: OpenVinoOptions,
) -> Runner:
    """Load the island, compiled as it is or else by compiling it, and return a function that runs it.

    Raises:
        TargetError: the artefact is of another format, the device is absent, or OpenVINO refuses.
    """
    check_format(artifact.properties, FORMAT, "openvino")
    properties = read_properties(artifact.properties, inputs, outputs)
    is_large = artifact.payload.size >= WORTHWHILE and options.device == "CPU"
    taken = TakenMemory() if is_large else None
    imported = import_compiled(artifact, options.device, compile_config(options))
    gives = properties.model_outputs(outputs)
    ports = len(inputs), len(gives), len(properties.checks.sums)
    # OpenVINO reads on in what it was given: in the compiled form, or in the portable form's weights.
    if imported is not None:
        compiled, kept = _Compiled(imported[0], imported=True), imported[1]
    else:
        compiled, kept = _compile(artifact, options, *ports), artifact.payload
    half = (TensorSpec((), "float32"),) if compiled.has_half else ()
    if compiled.held is not None:
        gives = _joined_specs(compiled.held.ports, gives)
    _check_ports(compiled.model, inputs, (*gives, *half), is_open=OUTPUT_SIZES in artifact.properties)
    island = _Island(compiled, replace(artifact, payload=kept), inputs, outputs, properties, taken)
    if compiled.has_half:
        exact = replace(options, precision="float32")
        island.compile_exactly = lambda: _compile(artifact, exact, *ports)
    return island


def parts_of(artifact: Artifact) -> tuple[bytes, Bytes]:
    """Return an island's portable form: OpenVINO's XML, and its weights where they lie.

    Raises:
        TargetError: they do not lie in the payload.
    """
    total = int(artifact.payload.size)
    size = read_number(artifact.properties, "weights_bytes", total, "openvino")
    at = read_number(artifact.properties, "xml_at", total, "openvino")
    xml_bytes = read_number(artifact.properties, "xml_bytes", total - at, "openvino")
    xml = unpack(artifact.payload[at : at + xml_bytes], artifact.properties, "xml_size", MOST_XML)
    return xml, artifact.payload[:size]


def weight_places(artifact: Artifact) -> list[tuple[int, int]]:
    """Return where in the payload constants lie: starts and lengths."""
    xml, _ = parts_of(artifact)
    found = _CONSTANT.findall(xml)
    return sorted({(int(offset), int(size)) for offset, size in found})


@dataclass(frozen=True)
class _Compiled:
    """What OpenVINO compiled.

    Args:
        model: OpenVINO's own.
        imported: whether it was read from a compiled form.
        may_export: whether the device's form may be kept: not if it needs settings of its own.
        has_half: whether it has products in float16, and an output that says whether they fitted.
        weights: the memory of weights that were written in another dtype.
        held: the caches that it holds from call to call.
        idle: its requests that no thread uses.
    """

    model: Any
    imported: bool = False
    may_export: bool = True
    has_half: bool = False
    weights: Bytes | None = None
    held: HeldCaches | None = None
    idle: collections.deque[Request] = field(default_factory=collections.deque)


def _compile(artifact: Artifact, options: OpenVinoOptions, inputs: int, outputs: int, sums: int) -> _Compiled:
    """Compile the portable form; the last of its outputs are sums."""
    xml, weights = parts_of(artifact)
    check_ir(xml, int(weights.size), inputs=inputs, outputs=outputs)
    try:
        model = core().read_model(xml, openvino().Tensor(weights, shared_memory=True))
        mend_for_arm(model)
        held = _hold_caches(model, sums, options)
        if held is not None:
            compiled = _compile_model(held.model, options, AS_GIVEN)
            if held.are_kernels(compiled.model):
                return replace(compiled, may_export=False, held=held)
        return _compile_model(model, options)
    except Exception as error:  # OpenVINO raises many kinds; each is a refusal
        raise TargetError(
            f"OpenVINO cannot compile the island: {str(error).strip().splitlines()[-1][:300]}",
            where=f"openvino, {options.device}",
        ) from error


def _is_float32(options: OpenVinoOptions) -> bool:
    return options.device == "CPU" and compile_config(options)[_PRECISION] == PRECISIONS["float32"]


def _hold_caches(model: Any, sums: int, options: OpenVinoOptions) -> HeldCaches | None:
    """Return a model that holds its caches, if it has any, and nobody says how they are to be held."""
    if not _is_float32(options) or options.config.keys() & AS_GIVEN.keys():
        return None
    return hold_caches(model, sums, in_float32=not has_bfloat16())


def _compile_model(
    model: Any, options: OpenVinoOptions, extra: Mapping[str, object] = MappingProxyType({})
) -> _Compiled:
    """Compile a model, written as its kernels are fastest."""
    config = exported = {**extra, **compile_config(options)}
    if options.device == "CPU":
        write_attention(model, in_float32=_is_float32(options) and not has_bfloat16())
    if options.device == "CPU" and is_slower_merged(model):
        config = exported = {**WITHOUT_MERGED_KERNELS, **config}  # a compiled form is as it was compiled
    elif options.device == "CPU" and is_added_to(model):
        config = {**WITHOUT_MERGED_KERNELS, **config}
    if options.device == "CPU" and are_taken_for_one(config):
        part_channel_scales(model)
    kept = write_half_products(model) if _is_half_wanted(options) else None
    has_half = kept is not None
    if has_half:
        config = {name: value for name, value in config.items() if name != _PRECISION} | AS_WRITTEN
    elif _is_float32(options):
        written = None if computes_halves() else compute_in_float32(model)
        if written is not None:
            model, exported = written, {}  # a compiled form would hold weights in float32
        else:
            kept = widen_weights(model)
    compiled = core().compile_model(model, options.device, config)
    if kept is not None:
        release_pages(kept)
    may_export = kept is None and config == exported
    return _Compiled(compiled, may_export=may_export, has_half=has_half, weights=kept)


def _is_half_wanted(options: OpenVinoOptions) -> bool:
    """Whether products are to be in float16: who sets OpenVINO's own properties for precision gets those."""
    chosen = options.config.keys() & {_PRECISION, *AS_WRITTEN}
    return options.precision == "float16" and options.device == "CPU" and not chosen


def _check_ports(
    compiled: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, is_open: bool
) -> None:
    """Refuse a model that takes or gives other tensors than the island: it writes into their memory.

    Where sizes are open OpenVINO may not know one that torch knows: it looks at the memory that it is given.

    Raises:
        TargetError: a tensor differs.
    """
    types = element_types()
    for ports, specs in ((compiled.inputs, inputs), (compiled.outputs, outputs)):
        expected = [(types.get(spec.dtype), spec.shape) for spec in specs]
        found = [(port.get_element_type(), _shape(port)) for port in ports]
        if is_open and len(found) == len(expected):
            found = [
                (kind, _filled(shape, spec.shape)) for (kind, shape), spec in zip(found, specs, strict=True)
            ]
        if found != expected:
            raise _other_tensors()


def _other_tensors() -> TargetError:
    return TargetError(
        "the model takes or gives other tensors than the island",
        where="openvino",
        remedy="compile the model again",
    )


def _joined_specs(ports: Sequence[Sequence[int]], specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return what a model gives that gives several outputs as one, and sums after all of them.

    Raises:
        TargetError: such outputs differ in the island.
    """
    joined = []
    for places in ports:
        one = specs[places[0]]
        if any(specs[place] != one for place in places):
            raise _other_tensors()
        joined.append(one if len(places) == 1 else replace(one, shape=(len(places), *one.shape)))
    return [*joined, *specs[sum(map(len, ports)) :]]


def _shape(port: Any) -> tuple[int, ...] | None:
    """Return the sizes of what crosses, -1 for open ones; None if not even their number is known."""
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(-1 if size.is_dynamic else size.get_length() for size in shape)


def _filled(shape: tuple[int, ...] | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a shape with the sizes that OpenVINO does not know, if they are as many."""
    if shape is None or len(shape) != len(known):
        return shape
    return tuple(other if size == -1 else size for size, other in zip(shape, known, strict=True))


def embed(artifact: Artifact, runner: Runner, options: OpenVinoOptions) -> Artifact:
    """Return the artefact with the compiled form of the runner that was loaded from it."""
    assert isinstance(runner, _Island)
    compiled = runner.compiled
    if not compiled.may_export:
        return artifact
    return add_compiled(artifact, compiled.model, options.device, compile_config(options))


def compile_config(options: OpenVinoOptions) -> dict[str, object]:
    """Return the options in OpenVINO's own terms."""
    config: dict[str, object] = {
        "PERFORMANCE_HINT": "LATENCY",
        # Left alone, OpenVINO computes in float16 or bfloat16 wherever the processor can.
        _PRECISION: PRECISIONS[options.precision],
    }
    if can_import(options.device):
        config.update(WITHOUT_WEIGHTS)
    if options.device == "CPU":
        # Threads that stay on their cores wait there for whoever else runs on them, as the caller's own does.
        config["ENABLE_CPU_PINNING"] = False
        # Left alone, OpenVINO rounds what goes into a product with weights of eight bits to eight bits too.
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    if options.threads:
        config["INFERENCE_NUM_THREADS"] = options.threads
    config.update(options.config)
    return config


class _Island:
    """A compiled island with its idle requests; each thread takes one for the time of a call."""

    # Compiles it without products in float16.
    compile_exactly: Callable[[], _Compiled] | None = None

    def __init__(
        self,
        compiled: _Compiled,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        properties: Properties,
        taken: TakenMemory | None = None,
    ) -> None:
        self.compiled = compiled
        self._taken = taken
        self._compiling = threading.Lock()
        self._kept = artifact.payload
        self._checks = properties.checks
        self._copies = sorted(properties.copies.items())
        self._shapes = [spec.shape for spec in outputs]
        self._own = [index for index in range(len(outputs)) if index not in properties.copies]
        self._dtypes = [getattr(torch, outputs[index].dtype) for index in self._own]
        # The sizes of the last call's inputs, and those of its outputs.
        self._known: tuple[list[torch.Size], list[tuple[int, ...]]] = [], []
        self._open_sizes = artifact.properties if OUTPUT_SIZES in artifact.properties else None
        if self._open_sizes is None and any(-1 in spec.shape for spec in (*inputs, *outputs)):
            raise refuse_property("openvino", OUTPUT_SIZES, None)

    @property
    def imported(self) -> bool:
        """Whether the file held what the device computes with."""
        return self.compiled.imported

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        return self.run_overlapped(arguments, None)

    def run_overlapped(
        self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile | None
    ) -> list[torch.Tensor]:
        """Run the island once, and `meanwhile` in this thread while the device computes."""
        self._checks.before(arguments)
        # The request does not keep the memory of its tensors alive: this list does, until it has run.
        kept = all_in_memory(arguments)
        sizes = list(map(torch.Tensor.size, kept))
        shapes = self._shapes if self._open_sizes is None else self._shapes_for(sizes)
        compiled = self.compiled  # which another thread may replace
        try:
            request = compiled.idle.pop()
        except IndexError:
            made = compiled.model.create_infer_request()
            sums = len(self._checks.sums) + compiled.has_half
            request = Request(made, len(kept), self._dtypes, sums, compiled.held)
        try:
            request.give(kept, sizes, [shapes[index] for index in self._own])
            # Not `infer`, which copies every output once more.
            request.request.start_async()
            try:
                request.prepare()
                if meanwhile is not None:
                    meanwhile()
            finally:
                request.request.wait()  # whatever happens: it writes to memory that is freed afterwards
            if self._taken is not None and request.is_new:  # it has weights in the form for these sizes now
                self._taken.move_to_huge_pages()
            results = request.take()
            totals = request.sums.tolist()
            if not math.isfinite(sum(totals)):
                request.forget()  # the caller runs the call with eager torch, and goes on from its rows
        except RuntimeError as error:
            raise TargetError(f"OpenVINO fails: {str(error).strip().splitlines()[-1][:300]}") from error
        finally:
            compiled.idle.append(request)
        if compiled.has_half and not math.isfinite(totals.pop()):
            self._give_up_half(compiled)
            return self.run_overlapped(arguments, None)
        for output, source in self._copies:  # in the order of the outputs
            results.insert(output, kept[source].reshape(shapes[output]).clone())
        self._checks.after(kept, results, totals)
        return results

    def _give_up_half(self, compiled: _Compiled) -> None:
        """Compile the island without products in float16, for good: something was too large for them."""
        assert self.compile_exactly is not None
        with self._compiling:
            if self.compiled is compiled:  # else another thread has
                _log.info("a value is too large for float16: the island is compiled for float32")
                # Its compiled form would be taken for one that was made with the options.
                self.compiled = replace(self.compile_exactly(), may_export=False)

    def _shapes_for(self, sizes: list[torch.Size]) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs for inputs of these sizes."""
        assert self._open_sizes is not None
        last, known = self._known
        if sizes == last:
            return known
        try:
            shapes = output_shapes(self._open_sizes, sizes)
        except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:  # a file's may be anything
            raise refuse_property("openvino", OUTPUT_SIZES, self._open_sizes[OUTPUT_SIZES]) from error
        if shapes is None or list(map(len, shapes)) != list(map(len, self._shapes)):
            raise refuse_property("openvino", OUTPUT_SIZES, self._open_sizes[OUTPUT_SIZES])
        self._known = sizes, shapes
        return shapes

    def counters(self) -> list[Any]:
        """Return OpenVINO's counters of the last run, if it was compiled with them."""
        return list(self.compiled.idle[-1].request.profiling_info)

"""Loads a built island into OpenVINO and runs it on torch's own memory, without copies."""

from __future__ import annotations

import logging
import math
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.artifact_properties import check_format, read_number, refuse_property
from torchport.targets.huge_pages import WORTHWHILE, TakenMemory
from torchport.targets.open_sizes import OUTPUT_SIZES, output_shapes
from torchport.targets.openvino.compile_model import Compiled, compile_config, compile_model
from torchport.targets.openvino.compiled_form import add_compiled, import_compiled
from torchport.targets.openvino.format import FORMAT, Bytes, Properties, read_properties, unpack
from torchport.targets.openvino.ir_check import MOST_XML, check_ir
from torchport.targets.openvino.library import core, element_types, openvino
from torchport.targets.openvino.options import OpenVinoOptions
from torchport.targets.openvino.request import Request, all_in_memory
from torchport.targets.target import Artifact, Meanwhile, OutOfRange, Runner

_log = logging.getLogger(__name__)

# A constant's attributes, as OpenVINO writes them.
_CONSTANT = re.compile(rb'<data [^>]*offset="([0-9]{1,18})"[^>]* size="([0-9]{1,18})"')


def load(
    artifact: Artifact,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: OpenVinoOptions,
) -> Runner:
    """Load the island, from its compiled form or by compiling the portable one, and return its runner.

    Raises:
        TargetError: the artefact has another format, the device is absent, or OpenVINO refuses the island.
    """
    check_format(artifact.properties, FORMAT, "openvino")
    properties = read_properties(artifact.properties, inputs, outputs)
    is_large = artifact.payload.size >= WORTHWHILE and options.device == "CPU"
    taken = TakenMemory() if is_large else None
    imported = import_compiled(artifact, options.device, compile_config(options))
    gives = properties.model_outputs(outputs)
    ports = len(inputs), len(gives), len(properties.checks.sums)
    # OpenVINO keeps reading the memory it was given: the compiled form, or the portable form's weights.
    if imported is not None:
        compiled, kept = Compiled(imported[0], imported=True), imported[1]
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
    """Return an island's portable form: OpenVINO's XML, and a view of the weights in the payload.

    Raises:
        TargetError: they do not lie within the payload, or the XML is damaged.
    """
    total = int(artifact.payload.size)
    size = read_number(artifact.properties, "weights_bytes", total, "openvino")
    at = read_number(artifact.properties, "xml_at", total, "openvino")
    xml_bytes = read_number(artifact.properties, "xml_bytes", total - at, "openvino")
    xml = unpack(artifact.payload[at : at + xml_bytes], artifact.properties, "xml_size", MOST_XML)
    return xml, artifact.payload[:size]


def weight_places(artifact: Artifact) -> list[tuple[int, int]]:
    """Return where the constants lie in the payload: offsets and lengths."""
    xml, _ = parts_of(artifact)
    found = _CONSTANT.findall(xml)
    return sorted({(int(offset), int(size)) for offset, size in found})


def _compile(artifact: Artifact, options: OpenVinoOptions, inputs: int, outputs: int, sums: int) -> Compiled:
    """Compile the portable form, whose last outputs are `sums` sums."""
    xml, weights = parts_of(artifact)
    check_ir(xml, weights, inputs=inputs, outputs=outputs)
    try:
        model = core().read_model(xml, openvino().Tensor(weights, shared_memory=True))
        return compile_model(model, sums, options)
    except Exception as error:  # OpenVINO raises many exception types; each is a refusal
        raise TargetError(
            f"OpenVINO cannot compile the island: {str(error).strip().splitlines()[-1][:300]}",
            where=f"openvino, {options.device}",
        ) from error


def _check_ports(
    compiled: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], *, is_open: bool
) -> None:
    """Refuse a model whose inputs or outputs differ from the island's: it writes into their memory.

    With open sizes, OpenVINO may not know a size that torch knows: it takes that of the tensors it is given.

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
        "the model's inputs or outputs differ from the island's",
        where="openvino",
        remedy="compile the model again",
    )


def _joined_specs(ports: Sequence[Sequence[int]], specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the specs of the outputs of a model that joins several outputs into one, followed by its sums.

    Raises:
        TargetError: outputs that are joined differ in shape or dtype.
    """
    joined = []
    for places in ports:
        one = specs[places[0]]
        if any(specs[place] != one for place in places):
            raise _other_tensors()
        joined.append(one if len(places) == 1 else replace(one, shape=(len(places), *one.shape)))
    return [*joined, *specs[sum(map(len, ports)) :]]


def _shape(port: Any) -> tuple[int, ...] | None:
    """Return the shape of an input or output, -1 for dynamic sizes; None if its rank is dynamic."""
    shape = port.get_partial_shape()
    if shape.rank.is_dynamic:
        return None
    return tuple(-1 if size.is_dynamic else size.get_length() for size in shape)


def _filled(shape: tuple[int, ...] | None, known: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return a shape with the sizes that OpenVINO does not know filled in, if the ranks match."""
    if shape is None or len(shape) != len(known):
        return shape
    return tuple(other if size == -1 else size for size, other in zip(shape, known, strict=True))


def embed(artifact: Artifact, runner: Runner, options: OpenVinoOptions) -> Artifact:
    """Return the artefact with the compiled form of the runner that was loaded from it added."""
    assert isinstance(runner, _Island)
    compiled = runner.compiled
    if not compiled.may_export:
        return artifact
    made = add_compiled(artifact, compiled.model, options.device, compile_config(options))
    if made is not artifact and not _is_same_when_imported(made, runner, options):
        _log.warning(
            "OpenVINO imports its compiled form as another model, so the file has the portable form only"
        )
        return artifact
    return made


def _is_same_when_imported(artifact: Artifact, runner: _Island, options: OpenVinoOptions) -> bool:
    """Whether an artefact's compiled form gives the results of the model that it was made from."""
    from torchport.verification import compare  # not needed to load and run islands

    arguments = runner.example()
    try:
        imported = load(artifact, *runner.specs, options)
        return compare(imported(arguments), runner(arguments)).ok
    except (TargetError, OutOfRange) as error:
        _log.info("the compiled form cannot be compared: %s", error)
        return False


class _Island:
    """A compiled island and its idle infer requests; each call takes one for its duration."""

    # Compiles the island without products in float16.
    compile_exactly: Callable[[], Compiled] | None = None

    def __init__(
        self,
        compiled: Compiled,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        properties: Properties,
        taken: TakenMemory | None = None,
    ) -> None:
        self.compiled = compiled
        self.specs = inputs, outputs
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
        """Whether the model was imported from the artefact's compiled form."""
        return self.compiled.imported

    def example(self) -> list[torch.Tensor]:
        """Return random arguments that the island takes."""
        return self._checks.example(self.specs[0])

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        return self.run_overlapped(arguments, None)

    def run_overlapped(
        self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile | None
    ) -> list[torch.Tensor]:
        """Run the island once, and `meanwhile` in this thread while the device computes."""
        self._checks.before(arguments)
        # The request does not keep its tensors' memory alive: this list does, until the request has run.
        kept = all_in_memory(arguments)
        sizes = list(map(torch.Tensor.size, kept))
        shapes = self._shapes if self._open_sizes is None else self._shapes_for(sizes)
        compiled = self.compiled  # another thread may replace it
        try:
            request = compiled.idle.pop()
        except IndexError:
            made = compiled.model.create_infer_request()
            sums = len(self._checks.sums) + compiled.has_half
            request = Request(made, len(kept), self._dtypes, sums, compiled.held)
        try:
            request.bind(kept, sizes, [shapes[index] for index in self._own])
            # Not `infer`, which copies every output.
            request.request.start_async()
            try:
                request.prepare()
                if meanwhile is not None:
                    meanwhile()
            finally:
                request.request.wait()  # always: it writes to memory that is freed afterwards
            if self._taken is not None and request.is_new:  # its weights are now packed for these sizes
                self._taken.settle()
            results = request.take()
            totals = request.sums.tolist()
            if not math.isfinite(sum(totals)):
                request.forget()  # the call reruns with eager torch, whose rows the next call starts from
        except RuntimeError as error:
            raise TargetError(f"OpenVINO failed: {str(error).strip().splitlines()[-1][:300]}") from error
        finally:
            compiled.idle.append(request)
        if compiled.has_half and not math.isfinite(totals.pop()):
            self._give_up_half(compiled)
            return self.run_overlapped(arguments, None)
        for output, source in self._copies:  # in the order of the outputs
            results.insert(output, kept[source].reshape(shapes[output]).clone())
        self._checks.after(kept, results, totals)
        return results

    def _give_up_half(self, compiled: Compiled) -> None:
        """Permanently replace the model by one without float16 products, because a value overflowed."""
        assert self.compile_exactly is not None
        with self._compiling:
            if self.compiled is compiled:  # otherwise another thread has replaced it
                _log.info("a value is too large for float16; recompiling the island for float32")
                # Its compiled form would pass for one compiled with the original options.
                self.compiled = replace(self.compile_exactly(), may_export=False)

    def _shapes_for(self, sizes: list[torch.Size]) -> list[tuple[int, ...]]:
        """Return the output shapes for these input sizes."""
        assert self._open_sizes is not None
        last, known = self._known
        if sizes == last:
            return known
        try:
            shapes = output_shapes(self._open_sizes, sizes)
        except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:  # a file may hold anything
            raise refuse_property("openvino", OUTPUT_SIZES, self._open_sizes[OUTPUT_SIZES]) from error
        if shapes is None or list(map(len, shapes)) != list(map(len, self._shapes)):
            raise refuse_property("openvino", OUTPUT_SIZES, self._open_sizes[OUTPUT_SIZES])
        self._known = sizes, shapes
        return shapes

    def counters(self) -> list[Any]:
        """Return OpenVINO's performance counters of the last run, if the model was compiled with them."""
        return list(self.compiled.idle[-1].request.profiling_info)

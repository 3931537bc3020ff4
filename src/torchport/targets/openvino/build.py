"""Builds an island: converts a graph of ATen ops to OpenVINO's intermediate representation (IR).

The artefact is the portable form: the IR's weights followed by its XML. Loading compiles it for the device.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy

from torchport.errors import TargetError
from torchport.records import TensorSpec, temporary_folder
from torchport.targets.folded_scales import fold_scales
from torchport.targets.open_sizes import copy_for_sizes
from torchport.targets.openvino.bounded_divisors import bound_divisors
from torchport.targets.openvino.convert_workarounds import place_conversions, truncate_conversions
from torchport.targets.openvino.explicit_defaults import write_default_dims
from torchport.targets.openvino.flat_norms import flatten_norms
from torchport.targets.openvino.float32_ops import widen_ops
from torchport.targets.openvino.format import FORMAT, Bytes, aligned, pack
from torchport.targets.openvino.full_grids import complete_grids
from torchport.targets.openvino.index_copy import copy_rows
from torchport.targets.openvino.int4_weights import stack_halves
from torchport.targets.openvino.ir_check import check_ir
from torchport.targets.openvino.library import element_types, openvino
from torchport.targets.openvino.nan_walk import Watch
from torchport.targets.openvino.narrow_integers import narrow_integers
from torchport.targets.openvino.padded_pools import pad_before_pools
from torchport.targets.openvino.pool_rounding import round_pools_down
from torchport.targets.openvino.scalar_reshapes import squeeze_to_scalars
from torchport.targets.openvino.slice_writes import rewrite_slice_writes
from torchport.targets.openvino.watches import add_sums, find_watches
from torchport.targets.summed_scales import dequantize_summed
from torchport.targets.target import Artifact, Island
from torchport.targets.value_ranges import input_ranges
from torchport.verification import HALVES


def build(island: Island) -> Artifact:
    """Convert an island and return it in OpenVINO's portable form.

    Raises:
        TargetError: OpenVINO's frontend refuses the island, or would change its interface: the number, shape
            or type of its tensors.
    """
    watches, finite_inputs = _watches(island)
    with_sums, sums = add_sums(island.graph_module, watches)
    rewrite_slice_writes(with_sums)
    # OpenVINO computes the factors in half precision, so that all elements of a channel are off together.
    fold_scales(with_sums, HALVES)
    widen_ops(with_sums)
    bound_divisors(with_sums)
    dequantize_summed(with_sums)
    stack_halves(with_sums)
    write_default_dims(with_sums)
    numbers = (TensorSpec((), "float32"),) * len(sums)
    model = _convert(replace(island, graph_module=with_sums, outputs=(*island.outputs, *numbers)))
    copies = _take_copies(model)
    with temporary_folder("openvino") as folder:
        openvino().serialize(model, folder / "island.xml", folder / "island.bin")
        ports = {"inputs": len(model.inputs), "outputs": len(model.outputs)}
        del model  # so that its weights are not in memory twice
        payload, properties = _read_payload(folder)
        # An IR that `load` would refuse is refused now, so that its ops stay on the host.
        weights = payload[: (folder / "island.bin").stat().st_size]
        check_ir((folder / "island.xml").read_bytes(), weights, **ports)
    ranges = input_ranges(island.graph_module)
    return Artifact(
        payload,
        {
            "format": FORMAT,
            **properties,
            "copies": {str(output): source for output, source in copies.items()},
            "input_ranges": {str(index): list(bounds) for index, bounds in ranges.items()},
            "finite_inputs": finite_inputs,
            "sums": sums,
            **({} if island.sizes is None else island.sizes.properties()),
        },
    )


def _watches(island: Island) -> tuple[list[Watch], list[int]]:
    """Return what must be watched in an island, with open sizes at their maximum, where sums are largest."""
    if island.sizes is None:
        return find_watches(island.graph_module)
    largest, copies = copy_for_sizes(island.graph_module, island.sizes.largest)
    originals = {copy: node for node, copy in copies.items()}
    watches, finite_inputs = find_watches(largest)
    return [replace(watch, node=originals[watch.node]) for watch in watches], finite_inputs


def _read_payload(folder: Path) -> tuple[Bytes, dict[str, object]]:
    """Return the payload of a model that was serialized to a folder, and the properties of its layout."""
    weights = folder / "island.bin"
    text = (folder / "island.xml").read_bytes()
    packed = pack(text)
    size = weights.stat().st_size
    at = aligned(size)
    payload = numpy.empty(at + packed.size, dtype=numpy.uint8)
    with weights.open("rb", buffering=0) as file:
        read = 0
        while read < size and (count := file.readinto(payload[read:size].data)):
            read += count
    if read < size:
        raise TargetError(
            "the weights file that OpenVINO wrote is truncated",
            where="openvino",
            remedy="check whether the disk is full",
        )
    payload[size:at] = 0
    payload[at:] = packed
    xml: dict[str, object] = {"xml_at": at, "xml_bytes": int(packed.size), "xml_size": len(text)}
    return payload, {"weights_bytes": size, **xml}


def _convert(island: Island) -> Any:
    frontend_parts = _import_frontend()
    frontend = frontend_parts["manager"]().load_by_framework("pytorch")
    decoder = frontend_parts["decoder"](island.graph_module)
    try:
        model = frontend.convert(frontend.load(decoder))
        _fix_inputs(model, island)
        model.validate_nodes_and_infer_types()
        round_pools_down(model)
        # Norms are folded into weights here rather than at each load. The weights are then the ones that the
        # device computes with, so its compiled form need not hold its own copies.
        frontend_parts["simplify"](model, cf=False, smart_reshape=False)
        copy_rows(model)
        squeeze_to_scalars(model)
        narrow_integers(model)
        complete_grids(model)
        pad_before_pools(model)
        flatten_norms(model)
        truncate_conversions(model)
        place_conversions(model, is_open=island.sizes is not None)
    except TargetError:
        raise
    except Exception as error:  # the frontend raises many exception types; each is a refusal
        raise TargetError(
            f"OpenVINO refuses the island: {_first_line(error)}", where=f"openvino, {island.name}"
        ) from error
    _check_outputs(model, island)
    return model


def _import_frontend() -> dict[str, Any]:
    openvino()
    from openvino._offline_transformations import apply_moc_transformations
    from openvino.frontend import FrontEndManager

    from torchport.targets.openvino.decoder import fast_decoder_type

    return {
        "manager": FrontEndManager,
        "decoder": fast_decoder_type(),
        "simplify": apply_moc_transformations,
    }


def _fix_inputs(model: Any, island: Island) -> None:
    """Set each input's shape and type, which the frontend leaves dynamic."""
    types = element_types()
    if len(model.inputs) != len(island.inputs):
        raise TargetError(f"OpenVINO sees {len(model.inputs)} inputs for {len(island.inputs)}")
    for port, spec in zip(model.inputs, island.inputs, strict=True):
        parameter = port.get_node()
        parameter.set_element_type(types[spec.dtype])
        # Without the bounds of open sizes: OpenVINO would allocate memory for the largest.
        parameter.set_partial_shape(openvino().PartialShape(list(spec.shape)))


def _check_outputs(model: Any, island: Island) -> None:
    """Check that OpenVINO infers the same output shapes and types as torch."""
    types = element_types()
    if len(model.outputs) != len(island.outputs):
        raise TargetError(
            f"OpenVINO sees {len(model.outputs)} outputs for {len(island.outputs)}",
            where=f"openvino, {island.name}",
        )
    for index, (port, spec) in enumerate(zip(model.outputs, island.outputs, strict=True)):
        shape = port.get_partial_shape()
        if shape.rank.is_dynamic or not _agree(shape, spec, is_open=island.sizes is not None):
            raise TargetError(
                f"OpenVINO infers the shape {shape} for output {index}, torch {list(spec.shape)}",
                where=f"openvino, {island.name}",
            )
        if port.get_element_type() != types[spec.dtype]:
            raise TargetError(
                f"OpenVINO infers {port.get_element_type()} for output {index}, torch {spec.dtype}",
                where=f"openvino, {island.name}",
            )


def _agree(shape: Any, spec: TensorSpec, *, is_open: bool) -> bool:
    """Whether OpenVINO's shape is torch's. A size that OpenVINO cannot infer is checked on each call."""
    sizes = [-1 if dimension.is_dynamic else dimension.get_length() for dimension in shape]
    return len(sizes) == len(spec.shape) and all(
        found == wanted or (is_open and found == -1) for found, wanted in zip(sizes, spec.shape, strict=True)
    )


def _take_copies(model: Any) -> dict[int, int]:
    """Remove outputs that are an input, at most reshaped, from the model; return which input each one is.

    OpenVINO never writes the memory set for such an output, and overwrites the input's memory if something
    else reads the input. The loader copies instead.
    """
    inputs = {port.get_node().get_friendly_name(): index for index, port in enumerate(model.inputs)}
    found = {}
    results = model.get_results()
    for index, result in enumerate(results):
        node = result.input_value(0).get_node()
        while node.get_type_name() in ("Reshape", "Squeeze", "Unsqueeze"):
            node = node.input_value(0).get_node()
        if node.get_type_name() == "Parameter":
            found[index] = inputs[node.get_friendly_name()]
    if len(found) < len(results):  # a model needs at least one result
        for index in found:
            model.remove_result(results[index])
    return found


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]

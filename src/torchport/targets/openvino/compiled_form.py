"""The device's own compiled form of an island: stored beside the portable one, used where it matches.

It is the output of OpenVINO's `export_model`. On a CPU it contains hardly any weights, but refers to the
portable form's, which OpenVINO insists on reading from a file. So it is used only where files in memory
(memfd) exist.

OpenVINO trusts a compiled form completely: it contains device-specific ops that check nothing, on GPUs
machine code. So each one is sealed with a secret of the user, and is used only by the user who made it; see
`seal.py`. Others compile the portable form, which is validated, or declare that they trust what they load, by
TORCHPORT_TRUST_COMPILED_FORM=1.

Islands with open sizes have none: OpenVINO 2026.4 crashes with a segmentation fault when it imports a
weightless one of a language model, and one with weights would double the file.
"""

from __future__ import annotations

import functools
import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy

from torchport.records import digest_of
from torchport.targets.artifact_properties import read_number
from torchport.targets.machine import processor
from torchport.targets.open_sizes import OUTPUT_SIZES
from torchport.targets.openvino.format import aligned, pack, unpack
from torchport.targets.openvino.library import core, openvino
from torchport.targets.seal import is_sealed, seal
from torchport.targets.target import Artifact

_log = logging.getLogger(__name__)

# The compiled form refers to weights instead of containing them. This affects `export_model` only.
WITHOUT_WEIGHTS = {"CACHE_MODE": "OPTIMIZE_SIZE"}


def add_compiled(artifact: Artifact, compiled: Any, device: str, config: Mapping[str, object]) -> Artifact:
    """Return the artefact with the device's compiled form added; unchanged if the device exports none."""
    if "compiled" in artifact.properties or OUTPUT_SIZES in artifact.properties or not can_import(device):
        return artifact
    try:
        form = compiled.export_model().getvalue()
    except RuntimeError as error:
        _log.info("%s exports no compiled form: %s", device, error)
        return artifact
    at = aligned(artifact.payload.size)
    packed = pack(form, smaller=_takes_weights(device))  # otherwise it contains weights, which gain nothing
    payload = numpy.zeros(at + packed.size, dtype=numpy.uint8)
    payload[: artifact.payload.size] = artifact.payload
    payload[at:] = packed
    entry: dict[str, object] = {
        "at": at, "bytes": int(packed.size), "size": len(form), "made_for": made_for(device, config),
    }  # fmt: skip
    sealed = seal(_sealed_text(digest_of(payload.data), entry, artifact.properties))
    return Artifact(payload, {**artifact.properties, "compiled": {**entry, "seal": sealed}})


def _sealed_text(digest: str, entry: Mapping[str, object], properties: Mapping[str, object]) -> str:
    """Return everything that the use of a compiled form depends on: the payload's digest and its layout."""
    facts = {key: entry.get(key) for key in ("at", "bytes", "size", "made_for")}
    return json.dumps([digest, facts, properties.get("weights_bytes")], sort_keys=True)


def _is_trusted(artifact: Artifact, entry: Mapping[str, object]) -> bool:
    if os.environ.get("TORCHPORT_TRUST_COMPILED_FORM") == "1":
        return True
    digest = artifact.digest or digest_of(artifact.payload.data)
    return is_sealed(_sealed_text(digest, entry, artifact.properties), entry.get("seal"))


def import_compiled(
    artifact: Artifact, device: str, config: Mapping[str, object]
) -> tuple[Any, numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]] | None:
    """Import an artefact's compiled form; return the compiled model and the memory that it keeps reading.

    That memory is a copy, so that the payload with all weights need not be kept. None if there is no compiled
    form that can be used here.
    """
    entry = artifact.properties.get("compiled")
    if not isinstance(entry, Mapping) or OUTPUT_SIZES in artifact.properties or not can_import(device):
        return None
    if entry.get("made_for") != made_for(device, config):
        _log.info(
            "the compiled form was made for another device, library version or configuration,"
            " so the portable form is compiled"
        )
        return None
    if not _is_trusted(artifact, entry):
        _log.info(
            "the compiled form was not made by this user, so the portable form is compiled;"
            " if you trust whoever made it, set TORCHPORT_TRUST_COMPILED_FORM=1"
        )
        return None
    total = int(artifact.payload.size)
    at = read_number(entry, "at", total, "openvino")
    packed = artifact.payload[at : at + read_number(entry, "bytes", total - at, "openvino")]
    form = numpy.frombuffer(bytearray(unpack(packed, entry, "size")), dtype=numpy.uint8)
    weights_bytes = read_number(artifact.properties, "weights_bytes", total, "openvino")
    try:
        with _as_file(artifact.payload[:weights_bytes]) as path:
            settings = {**config, **({"WEIGHTS_PATH": path} if _takes_weights(device) else {})}
            return core().import_model(openvino().Tensor(form, shared_memory=True), device, settings), form
    except (RuntimeError, OSError) as error:  # the portable form gives the same results
        _log.warning("OpenVINO refuses the compiled form, so the portable form is compiled: %s", error)
        return None


def made_for(device: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return everything that a compiled form depends on, as JSON: device, library, processor and settings."""
    return {
        "openvino": str(openvino().get_version()),
        "device": device,
        "name": str(core().get_property(device, "FULL_DEVICE_NAME")),
        "capabilities": sorted(map(str, core().get_property(device, "OPTIMIZATION_CAPABILITIES"))),
        "processor": processor(),
        "config": {key: str(value) for key, value in sorted(config.items())},
    }


@functools.cache
def can_import(device: str) -> bool:
    """Whether the device supports compiled forms and they can be used here."""
    try:
        able = "EXPORT_IMPORT" in core().get_property(device, "OPTIMIZATION_CAPABILITIES")
    except RuntimeError:  # virtual devices do not report capabilities
        return False
    return able and (hasattr(os, "memfd_create") or not _takes_weights(device))


@functools.cache
def _takes_weights(device: str) -> bool:
    return "WEIGHTS_PATH" in core().get_property(device, "SUPPORTED_PROPERTIES")


@contextmanager
def _as_file(weights: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]) -> Iterator[str]:
    """Yield the path of a file in memory with the weights; once OpenVINO has mapped it, it may be closed."""
    descriptor = os.memfd_create("torchport-weights")
    try:
        rest = weights.data
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)

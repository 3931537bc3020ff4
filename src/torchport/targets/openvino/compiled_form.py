"""The device's own compiled form of an island: written beside the portable one, used where it fits.

It is what OpenVINO's `export_model` gives. On a CPU it holds hardly any weights: it finds them in the
portable form's, which OpenVINO wants to read from a file. So it is used where a file can be had in memory.

OpenVINO trusts a compiled form wholly: it holds ops of the device's own that check nothing, on GPUs machine
code. So each is sealed with a secret of the user's, and only who made it uses it; see `seal.py`. Others
compile the portable form, which is checked, or say that they trust what they load, by
TORCHPORT_TRUST_COMPILED_FORM=1.

Islands with open sizes have none: OpenVINO 2026.4 ends in a segmentation fault when it imports one of a
language model without weights, and one with weights would double the file.
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

# The compiled form refers to weights instead of holding them. It changes nothing but `export_model`.
WITHOUT_WEIGHTS = {"CACHE_MODE": "OPTIMIZE_SIZE"}


def add_compiled(artifact: Artifact, compiled: Any, device: str, config: Mapping[str, object]) -> Artifact:
    """Return the artefact with the device's own compiled form; as it is, if the device gives none."""
    if "compiled" in artifact.properties or OUTPUT_SIZES in artifact.properties or not can_import(device):
        return artifact
    try:
        form = compiled.export_model().getvalue()
    except RuntimeError as error:
        _log.info("%s exports no compiled form: %s", device, error)
        return artifact
    at = aligned(artifact.payload.size)
    packed = pack(form, smaller=_takes_weights(device))  # who takes them holds none
    payload = numpy.zeros(at + packed.size, dtype=numpy.uint8)
    payload[: artifact.payload.size] = artifact.payload
    payload[at:] = packed
    entry: dict[str, object] = {
        "at": at, "bytes": int(packed.size), "size": len(form), "made_for": made_for(device, config),
    }  # fmt: skip
    sealed = seal(_sealed_text(digest_of(payload.data), entry, artifact.properties))
    return Artifact(payload, {**artifact.properties, "compiled": {**entry, "seal": sealed}})


def _sealed_text(digest: str, entry: Mapping[str, object], properties: Mapping[str, object]) -> str:
    """Return all that a compiled form is used with: the whole payload, and where in it what lies."""
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
    """Return the compiled model of an artefact's compiled form, and the memory that it goes on reading.

    That is a copy, so that the payload with all weights need not be kept. None if no form fits here.
    """
    entry = artifact.properties.get("compiled")
    if not isinstance(entry, Mapping) or OUTPUT_SIZES in artifact.properties or not can_import(device):
        return None
    if entry.get("made_for") != made_for(device, config):
        _log.info("the compiled form was made for something else, so the portable form is compiled")
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
    except (RuntimeError, OSError) as error:  # the portable form is as good
        _log.warning("OpenVINO refuses the compiled form, so the portable form is compiled: %s", error)
        return None


def made_for(device: str, config: Mapping[str, object]) -> dict[str, object]:
    """Return all that a compiled form depends on: device, library and settings, as JSON."""
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
    """Whether a device has a compiled form that can be used here."""
    try:
        able = "EXPORT_IMPORT" in core().get_property(device, "OPTIMIZATION_CAPABILITIES")
    except RuntimeError:  # devices that stand for others say nothing of themselves
        return False
    return able and (hasattr(os, "memfd_create") or not _takes_weights(device))


@functools.cache
def _takes_weights(device: str) -> bool:
    return "WEIGHTS_PATH" in core().get_property(device, "SUPPORTED_PROPERTIES")


@contextmanager
def _as_file(weights: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]) -> Iterator[str]:
    """Give a file in memory that holds the weights; OpenVINO maps it and needs the name no longer."""
    descriptor = os.memfd_create("torchport-weights")
    try:
        rest = weights.data
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)

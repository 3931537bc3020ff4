"""The OpenVINO target: verdicts, build and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx

from torchport.records import SUPPORTED, OpTime, TensorSpec, Verdict
from torchport.targets.openvino.format import FORMAT
from torchport.targets.openvino.int4_weights import is_unpacking
from torchport.targets.openvino.library import (
    REMEDY,
    check_config,
    check_device,
    core,
    installed_version,
)
from torchport.targets.openvino.open_size_checks import check_size_arguments
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.options import OpenVinoOptions, check_file_options
from torchport.targets.openvino.rules import Rule
from torchport.targets.rule_target import RuleTarget
from torchport.targets.target import Artifact, Availability, Island, Runner


class OpenVinoTarget(RuleTarget[OpenVinoOptions, Rule]):
    """Intel's OpenVINO: CPUs (Intel and ARM), Intel GPUs and NPUs."""

    name = "openvino"
    description = "OpenVINO on CPUs, Intel GPUs and NPUs"
    options_type = OpenVinoOptions
    build_format = FORMAT
    # OpenVINO's CPU kernels compute integers in 32 bits, some of them (additions on ARM) in float32,
    # which represents integers exactly up to this bound.
    exact_integers = (-(2**24), 2**24)
    no_lowering = "OpenVINO has no lowering for {op} that matches torch"

    def availability(self) -> Availability:
        """Return the installed OpenVINO version and the devices it finds."""
        version = installed_version()
        if not version:
            return Availability(False, "OpenVINO is not installed", REMEDY)
        try:
            devices = tuple(core().available_devices)
        except Exception as error:  # noqa: BLE001  # a broken driver may raise anything
            return Availability(False, f"OpenVINO fails to start: {error}", REMEDY, version)
        return Availability(True, f"OpenVINO {version}", version=version, devices=devices)

    def check_ready(self, options: OpenVinoOptions) -> None:
        """Refuse a missing library, an absent device, or a precision that the device does not support."""
        check_device(options.device, options.precision)

    def version(self) -> str:
        """Return OpenVINO's version."""
        return installed_version()

    def rules(self) -> Mapping[str, Rule]:
        """Return the rules of the ops that OpenVINO computes as torch does."""
        return RULES

    def verdict(self, node: fx.Node, options: OpenVinoOptions) -> Verdict:
        """Say whether OpenVINO computes a node as torch does; 4-bit unpacking chains are always supported."""
        return SUPPORTED if is_unpacking(node) else super().verdict(node, options)

    def takes_open_sizes(self, options: OpenVinoOptions) -> bool:
        """Whether the device supports open sizes: only CPUs do."""
        return options.device == "CPU"

    def open_verdict(self, node: fx.Node, options: OpenVinoOptions) -> Verdict:
        """Say whether a node's rule and OpenVINO's frontend allow open sizes."""
        verdict = super().open_verdict(node, options)
        return check_size_arguments(node) or verdict if verdict.ok else verdict

    def is_low_precision(self, options: OpenVinoOptions) -> bool:
        """Whether a precision below float32 was requested."""
        return options.precision != "float32"

    def build(self, island: Island, options: OpenVinoOptions) -> Artifact:
        """Convert the island to OpenVINO's portable form, its intermediate representation."""
        from torchport.targets.openvino.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: OpenVinoOptions,
    ) -> Runner:
        """Import the compiled form if it was made for this device; otherwise compile the portable form."""
        from torchport.targets.openvino.load import load

        return load(artifact, inputs, outputs, options)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where the constants lie in the payload: offsets and lengths."""
        from torchport.targets.openvino.load import weight_places

        return weight_places(artifact)

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return the intermediate representation as files that OpenVINO's own tools can open."""
        from torchport.targets.openvino.load import parts_of

        xml, weights = parts_of(artifact)
        return {"model.xml": xml, "model.bin": weights.tobytes()}

    def embed(self, artifact: Artifact, runner: Runner, options: OpenVinoOptions) -> Artifact:
        """Add the device's compiled form to the artefact."""
        from torchport.targets.openvino.load import embed

        return embed(artifact, runner, options)

    def op_times(
        self, island: Island, options: OpenVinoOptions, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return the op times from OpenVINO's performance counters."""
        from torchport.targets.openvino.profile import op_times

        return op_times(island, options, arguments)

    def make_options(self, given: Mapping[str, object] | None) -> OpenVinoOptions:
        """Build the options, refusing config properties that OpenVINO rejects."""
        options = super().make_options(given)
        if options.config and installed_version():
            check_config(options.device, options.config)
        return options

    def options_from_file(self, given: Mapping[str, object]) -> OpenVinoOptions:
        """Build the options requested by a file, refusing those that do more than choose how to compute."""
        check_file_options(given)
        return self.make_options(given)

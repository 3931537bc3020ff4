"""OpenVINO as a target: verdicts, build and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx

from torchport.records import SUPPORTED, OpTime, TensorSpec, Verdict
from torchport.targets.openvino.format import FORMAT
from torchport.targets.openvino.library import (
    REMEDY,
    check_config,
    check_device,
    core,
    installed_version,
)
from torchport.targets.openvino.open_dims import check_size_arguments
from torchport.targets.openvino.ops import RULES
from torchport.targets.openvino.options import OpenVinoOptions, check_file_options
from torchport.targets.openvino.packed_weights import is_unpacking
from torchport.targets.openvino.rules import Rule
from torchport.targets.rule_target import RuleTarget
from torchport.targets.target import Artifact, Availability, Island, Runner


class OpenVinoTarget(RuleTarget[OpenVinoOptions, Rule]):
    """Intel's OpenVINO: CPUs (Intel and ARM), Intel GPUs and NPUs."""

    name = "openvino"
    description = "OpenVINO on CPUs, Intel GPUs and NPUs"
    options_type = OpenVinoOptions
    build_format = FORMAT
    # OpenVINO's CPU kernels compute integers in 32 bits, and some of them (additions on ARM) in float32,
    # which holds integers exactly up to this.
    exact_integers = (-(2**24), 2**24)
    no_lowering = "OpenVINO has no lowering for {op} that equals torch's"

    def availability(self) -> Availability:
        """Say which OpenVINO is installed and which devices it sees."""
        version = installed_version()
        if not version:
            return Availability(False, "OpenVINO is not installed", REMEDY)
        try:
            devices = tuple(core().available_devices)
        except Exception as error:  # noqa: BLE001  # a broken driver may raise anything
            return Availability(False, f"OpenVINO does not start: {error}", REMEDY, version)
        return Availability(True, f"OpenVINO {version}", version=version, devices=devices)

    def check_ready(self, options: OpenVinoOptions) -> None:
        """Refuse a missing library, an absent device, or a precision that it cannot compute in."""
        check_device(options.device, options.precision)

    def version(self) -> str:
        """Return OpenVINO's version."""
        return installed_version()

    def rules(self) -> Mapping[str, Rule]:
        """Return what OpenVINO computes as torch does."""
        return RULES

    def verdict(self, node: fx.Node, options: OpenVinoOptions) -> Verdict:
        """Say whether OpenVINO computes a node as torch does; a weight of four bits is taken as a whole."""
        return SUPPORTED if is_unpacking(node) else super().verdict(node, options)

    def takes_open_sizes(self, options: OpenVinoOptions) -> bool:
        """Whether the device computes tensors of any size: CPUs do."""
        return options.device == "CPU"

    def open_verdict(self, node: fx.Node, options: OpenVinoOptions) -> Verdict:
        """Say whether a node's rule, and OpenVINO's frontend, let its sizes be open."""
        verdict = super().open_verdict(node, options)
        return check_size_arguments(node) or verdict if verdict.ok else verdict

    def is_low_precision(self, options: OpenVinoOptions) -> bool:
        """Whether a lower precision was asked for."""
        return options.precision != "float32"

    def build(self, island: Island, options: OpenVinoOptions) -> Artifact:
        """Convert the island to OpenVINO's portable form."""
        from torchport.targets.openvino.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: OpenVinoOptions,
    ) -> Runner:
        """Take the compiled form if it was made for this device, else compile the portable one."""
        from torchport.targets.openvino.load import load

        return load(artifact, inputs, outputs, options)

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where the constants lie."""
        from torchport.targets.openvino.load import weight_places

        return weight_places(artifact)

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return OpenVINO's intermediate representation, which its own tools open."""
        from torchport.targets.openvino.load import parts_of

        xml, weights = parts_of(artifact)
        return {"model.xml": xml, "model.bin": weights.tobytes()}

    def embed(self, artifact: Artifact, runner: Runner, options: OpenVinoOptions) -> Artifact:
        """Add OpenVINO's own compiled form."""
        from torchport.targets.openvino.load import embed

        return embed(artifact, runner, options)

    def op_times(
        self, island: Island, options: OpenVinoOptions, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return what OpenVINO's counters say."""
        from torchport.targets.openvino.profile import op_times

        return op_times(island, options, arguments)

    def make_options(self, given: Mapping[str, object] | None) -> OpenVinoOptions:
        """Build the options; refuses a property that OpenVINO refuses."""
        options = super().make_options(given)
        if options.config and installed_version():
            check_config(options.device, options.config)
        return options

    def options_from_file(self, given: Mapping[str, object]) -> OpenVinoOptions:
        """Build the options that a file asks for; refuses those that do more than choose how to compute."""
        check_file_options(given)
        return self.make_options(given)

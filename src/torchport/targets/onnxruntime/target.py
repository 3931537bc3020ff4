"""onnxruntime as a target: verdicts, build and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from torchport.records import OpTime, TensorSpec
from torchport.targets.onnxruntime.format import FORMAT
from torchport.targets.onnxruntime.library import (
    REMEDY,
    check_provider,
    installed_version,
    library,
    providers,
)
from torchport.targets.onnxruntime.options import OnnxRuntimeOptions, check_file_options
from torchport.targets.onnxruntime.rules import RULES, OnnxRule
from torchport.targets.rule_target import RuleTarget
from torchport.targets.target import Artifact, Availability, Island, Runner


class OnnxRuntimeTarget(RuleTarget[OnnxRuntimeOptions, OnnxRule]):
    """Microsoft's onnxruntime: CPUs, and other devices that its build has execution providers for."""

    name = "onnxruntime"
    description = "onnxruntime on CPUs, and on other devices that its build has execution providers for"
    options_type = OnnxRuntimeOptions
    build_format = FORMAT
    # It computes them in 64 bits; these bounds are those that the rules shared with OpenVINO are tested with.
    exact_integers = (-(2**24), 2**24)
    no_lowering = "onnxruntime has no lowering for {op} that equals torch's"

    def availability(self) -> Availability:
        """Report the installed version of onnxruntime and its execution providers."""
        missing = [name for name in ("onnxruntime", "onnx", "onnxscript") if not installed_version(name)]
        if missing:
            return Availability(False, f"{' and '.join(missing)} not installed", REMEDY)
        version = installed_version()
        try:
            return Availability(True, f"onnxruntime {version}", version=version, devices=providers())
        except Exception as error:  # noqa: BLE001  # a broken installation may raise anything
            return Availability(False, f"onnxruntime cannot be loaded: {error}", REMEDY, version)

    def check_ready(self, options: OnnxRuntimeOptions) -> None:
        """Refuse a missing library, or an execution provider that this build lacks."""
        for name in ("onnxruntime", "onnx", "onnxscript"):
            library(name)
        check_provider(options.provider)

    def version(self) -> str:
        """Return the versions of onnxruntime and of the exporter."""
        return f"{installed_version()}, onnxscript {installed_version('onnxscript')}"

    def rules(self) -> Mapping[str, OnnxRule]:
        """Return the rules for ops that onnxruntime computes as torch does."""
        return RULES

    def build(self, island: Island, options: OnnxRuntimeOptions) -> Artifact:
        """Convert the island to ONNX."""
        from torchport.targets.onnxruntime.build import build

        return build(island)

    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: OnnxRuntimeOptions,
    ) -> Runner:
        """Load the island into an onnxruntime session."""
        from torchport.targets.onnxruntime.load import load

        return load(artifact, inputs, outputs, options)

    def op_times(
        self, island: Island, options: OnnxRuntimeOptions, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return the times that onnxruntime's profiler measures."""
        from torchport.targets.onnxruntime.profile import op_times

        return op_times(island, options, arguments)

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return the ONNX model, which many tools can open."""
        return {"model.onnx": artifact.payload.tobytes()}

    def options_from_file(self, given: Mapping[str, object]) -> OnnxRuntimeOptions:
        """Build the options that a file asks for; refuses providers that may access files or libraries."""
        check_file_options(given)
        return self.make_options(given)

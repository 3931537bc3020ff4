"""Loads a built island into onnxruntime and runs it on torch's memory, without copying inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchport.errors import TargetError, one_line
from torchport.records import TensorSpec
from torchport.targets.artifact_properties import check_format
from torchport.targets.call_checks import CallChecks
from torchport.targets.onnxruntime.format import FORMAT
from torchport.targets.onnxruntime.library import check_provider, library, provider_list
from torchport.targets.onnxruntime.onnx_check import checked_model
from torchport.targets.onnxruntime.options import OnnxRuntimeOptions
from torchport.targets.onnxruntime.quantized import is_quantized
from torchport.targets.processor import has_int8
from torchport.targets.target import Artifact, Runner
from torchport.targets.tensor_memory import as_array

_TYPES = {
    "float32": "tensor(float)",
    "int64": "tensor(int64)",
    "int32": "tensor(int32)",
    "bool": "tensor(bool)",
}


def load(
    artifact: Artifact,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: OnnxRuntimeOptions,
) -> Runner:
    """Check the island, load it into onnxruntime, and return a function that runs it.

    Raises:
        TargetError: the artefact has another format, fails the check, or onnxruntime cannot load it.
    """
    check_format(artifact.properties, FORMAT, "onnxruntime")
    checks = CallChecks(artifact.properties, inputs, "onnxruntime")
    gives = [*outputs, *[TensorSpec((), "float32")] * len(checks.sums)]
    check_provider(options.provider)
    model = checked_model(artifact.payload.tobytes(), len(inputs), len(gives))
    try:
        session = make_session(model, session_options(options), options)
    except Exception as error:  # onnxruntime raises many types; each means that it cannot load the model
        raise TargetError(
            f"onnxruntime cannot load the island: {one_line(error)}", where="onnxruntime"
        ) from error
    _check_ports(session, inputs, gives)
    return _Island(session, checks)


def make_session(model: bytes, settings: Any, options: OnnxRuntimeOptions) -> Any:
    """Return a session for a model."""
    # A product with a bias would become a Gemm, which has no 8-bit kernel with per-channel scales; weights in
    # floats would be rounded to eight bits where the layer's input and output are.
    unwanted = ["MatMulAddFusion", "WeightBiasQuantization"] if is_quantized(model) else []
    return library("onnxruntime").InferenceSession(
        model,
        settings,
        providers=provider_list(options.provider),
        disabled_optimizers=unwanted,
        enable_fallback=0,  # to another provider, which it announces on stdout
    )


def session_options(options: OnnxRuntimeOptions) -> Any:
    """Return the session options."""
    made = library("onnxruntime").SessionOptions()
    made.intra_op_num_threads = options.threads or torch.get_num_threads()
    made.log_severity_level = 4  # fatal only: errors are raised as exceptions anyway
    made.enable_profiling = False
    if not has_int8():
        # On x86, sums of 8-bit products would otherwise overflow 16 bits. With VNNI they do not, and there
        # the unsigned weights that this entry converts to take three times as long.
        made.add_session_config_entry("session.x64quantprecision", "1")
    # With weight-only quantization, activations would otherwise be rounded too.
    made.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return made


def _check_ports(session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Refuse a model whose inputs or outputs differ from the island's."""
    for ports, specs in ((session.get_inputs(), inputs), (session.get_outputs(), outputs)):
        found = [(port.type, tuple(port.shape)) for port in ports]
        if found != [(_TYPES.get(spec.dtype), spec.shape) for spec in specs]:
            raise TargetError(
                "the model's inputs or outputs differ from the island's",
                where="onnxruntime",
                remedy="compile the model again",
            )


class _Island:
    """An onnxruntime session, safe to run from several threads at once."""

    def __init__(self, session: Any, checks: CallChecks) -> None:
        self.session = session
        self._checks = checks
        self._names = [port.name for port in session.get_inputs()]
        self._gives = len(session.get_outputs()) - len(checks.sums)

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        self._checks.before(arguments)
        kept = [argument.detach().contiguous().resolve_neg() for argument in arguments]
        feed = {name: as_array(argument) for name, argument in zip(self._names, kept, strict=True)}
        try:
            found = self.session.run(None, feed)
        except Exception as error:
            raise TargetError(f"onnxruntime fails: {one_line(error)}", where="onnxruntime") from error
        results = [torch.from_numpy(array) for array in found[: self._gives]]
        self._checks.after(kept, results, [float(total) for total in found[self._gives :]])
        return results

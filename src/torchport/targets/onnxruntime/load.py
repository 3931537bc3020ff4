"""Loads a built island into onnxruntime and runs it on torch's own memory."""

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
    """Check the island, have onnxruntime read it, and return a function that runs it.

    Raises:
        TargetError: the artefact is of another format, does not pass the check, or onnxruntime refuses it.
    """
    check_format(artifact.properties, FORMAT, "onnxruntime")
    checks = CallChecks(artifact.properties, inputs, "onnxruntime")
    gives = [*outputs, *[TensorSpec((), "float32")] * len(checks.sums)]
    check_provider(options.provider)
    model = checked_model(artifact.payload.tobytes(), len(inputs), len(gives))
    try:
        session = make_session(model, session_options(options), options)
    except Exception as error:  # onnxruntime raises many kinds; each is a refusal
        raise TargetError(
            f"onnxruntime refuses the island: {one_line(error)}", where="onnxruntime"
        ) from error
    _check_ports(session, inputs, gives)
    return _Island(session, checks)


def make_session(model: bytes, settings: Any, options: OnnxRuntimeOptions) -> Any:
    """Return a session for a model."""
    # A product with a bias would become a Gemm, which has no kernel for eight bits with a scale by channel.
    unwanted = ["MatMulAddFusion"] if is_quantized(model) else []
    return library("onnxruntime").InferenceSession(
        model, settings, providers=provider_list(options.provider), disabled_optimizers=unwanted
    )


def session_options(options: OnnxRuntimeOptions) -> Any:
    """Return how a session runs."""
    made = library("onnxruntime").SessionOptions()
    made.intra_op_num_threads = options.threads or torch.get_num_threads()
    made.log_severity_level = 4  # what fails is raised as well
    made.enable_profiling = False
    if not has_int8():
        # On x86, sums of products of eight bits would otherwise overflow in 16. With VNNI they do not, and
        # unsigned weights, which this makes of them, take three times as long.
        made.add_session_config_entry("session.x64quantprecision", "1")
    # Where weights alone are in eight bits, what they are multiplied with would be rounded too.
    made.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return made


def _check_ports(session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Refuse a model that takes or gives other tensors than the island."""
    for ports, specs in ((session.get_inputs(), inputs), (session.get_outputs(), outputs)):
        found = [(port.type, tuple(port.shape)) for port in ports]
        if found != [(_TYPES.get(spec.dtype), spec.shape) for spec in specs]:
            raise TargetError(
                "the model takes or gives other tensors than the island",
                where="onnxruntime",
                remedy="compile the model again",
            )


class _Island:
    """A session of onnxruntime's, which several threads may run at once."""

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

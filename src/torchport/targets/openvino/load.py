"""Loads a built island into OpenVINO and runs it on torch's own memory, without copies."""

from __future__ import annotations

import collections
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from torchport.errors import TargetError
from torchport.records import TensorSpec
from torchport.targets.openvino.format import FORMAT
from torchport.targets.openvino.library import core, openvino
from torchport.targets.openvino.options import PRECISIONS, OpenVinoOptions
from torchport.targets.target import Artifact, GaveNaN, OutOfRange, Runner


def load(
    artifact: Artifact,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: OpenVinoOptions,
) -> Runner:
    """Compile the island for the device and return a function that runs it.

    Raises:
        TargetError: the artefact is of another format, the device is absent, or OpenVINO refuses.
    """
    if artifact.properties.get("format") != FORMAT:
        raise TargetError(
            f"the island has format {artifact.properties.get('format')!r}, not {FORMAT}",
            where="openvino",
            remedy="compile the model again with this version of torchport",
        )
    compiled = _compile(artifact, options)
    return _Island(compiled, artifact, inputs, outputs).run


def _compile(artifact: Artifact, options: OpenVinoOptions) -> Any:
    size, weights_at = artifact.properties["xml_bytes"], artifact.properties["weights_at"]
    assert isinstance(size, int)
    assert isinstance(weights_at, int)
    weights = openvino().Tensor(artifact.payload[weights_at:], shared_memory=True)
    try:
        model = core().read_model(artifact.payload[:size].tobytes(), weights)
        return core().compile_model(model, options.device, compile_config(options))
    except Exception as error:  # OpenVINO raises many kinds; each is a refusal
        raise TargetError(
            f"OpenVINO cannot compile the island: {str(error).strip().splitlines()[-1][:300]}",
            where=f"openvino, {options.device}",
        ) from error


def compile_config(options: OpenVinoOptions) -> dict[str, object]:
    """Return the options in OpenVINO's own terms."""
    config: dict[str, object] = {
        "PERFORMANCE_HINT": "LATENCY",
        # Left alone, OpenVINO computes in float16 or bfloat16 wherever the processor can.
        "INFERENCE_PRECISION_HINT": PRECISIONS[options.precision],
    }
    if options.threads:
        config["INFERENCE_NUM_THREADS"] = options.threads
    config.update(options.config)
    return config


class _Island:
    """A compiled island with its idle requests; each thread takes one for the time of a call."""

    def __init__(
        self,
        compiled: Any,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
    ) -> None:
        self._compiled = compiled
        self._payload = artifact.payload  # the model's weights lie in it
        self._idle: collections.deque[Any] = collections.deque()
        self._floats = [index for index, spec in enumerate(inputs) if "float" in spec.dtype]
        ranges = artifact.properties["input_ranges"]
        copies = artifact.properties["copies"]
        assert isinstance(ranges, Mapping)
        assert isinstance(copies, Mapping)
        self._copies = sorted(
            (int(output), source, outputs[int(output)].shape) for output, source in copies.items()
        )
        self._outputs = [
            (spec.shape, getattr(torch, spec.dtype))
            for index, spec in enumerate(outputs)
            if str(index) not in copies
        ]
        self._ranges = [(int(index), bounds[0], bounds[1]) for index, bounds in ranges.items()]

    def run(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        for index, low, high in self._ranges:
            _check_range(arguments[index], low, high)
        # The request does not keep the memory of its tensors alive: this list does, until it has run.
        kept = [argument.detach().contiguous() for argument in arguments]
        results = self._infer(kept)
        for output, source, shape in self._copies:  # in the order of the outputs
            results.insert(output, kept[source].reshape(shape).clone())
        if any(result.is_floating_point() and _has_nan(result) for result in results):
            raise GaveNaN(results)
        return results

    def _infer(self, kept: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        results: list[torch.Tensor] = []
        try:
            for index, argument in enumerate(kept):
                request.set_input_tensor(index, _as_openvino(argument))
            for shape, dtype in self._outputs:
                result = torch.empty(shape, dtype=dtype)
                request.set_output_tensor(len(results), _as_openvino(result))
                results.append(result)
            # Not `infer`, which copies every output once more. The inputs are looked over meanwhile.
            request.start_async()
            try:
                clean = not any(_has_nan(kept[index]) for index in self._floats)
            finally:
                request.wait()  # whatever happens: the request writes to memory that is freed afterwards
        except RuntimeError as error:
            raise TargetError(f"OpenVINO fails: {str(error).strip().splitlines()[-1][:300]}") from error
        finally:
            self._idle.append(request)
        if not clean:
            # OpenVINO loses NaN: its relu, clamp, maximum and comparisons do not keep it.
            raise OutOfRange("an input holds NaN")
        return results


def _check_range(argument: torch.Tensor, low: int, high: int) -> None:
    """Refuse integers that the device would cut off, or that index nothing."""
    if argument.numel() == 0:
        return
    least, most = torch.aminmax(argument)
    if least.item() < low or most.item() > high:
        raise OutOfRange(f"an integer input holds values outside {low} … {high}")


def _has_nan(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds NaN: the sum of its squares is NaN just then, and costs one pass."""
    flat = tensor.reshape(-1)
    return math.isnan(torch.dot(flat, flat).item())


def _as_openvino(tensor: torch.Tensor) -> Any:
    """Return an OpenVINO tensor on the same memory."""
    if tensor.dtype is torch.bfloat16:
        array = tensor.view(torch.int16).numpy()
        return openvino().Tensor(array.view(numpy.uint16), tensor.shape, openvino().Type.bf16)
    return openvino().Tensor(tensor.numpy(), True)

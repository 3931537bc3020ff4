"""The ways to run a model that `inference.py` compares, all in float32 on equally many threads."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from common import Call
from torch import nn

import torchport
from torchport.structure import tensors_in


@dataclass(frozen=True, eq=False)
class Subject:
    """A model and the inputs on which it is timed.

    Args:
        module: the model, in evaluation mode.
        args, kwargs: its inputs.
        threads: how many threads a contender may use.
    """

    module: nn.Module
    args: tuple[object, ...]
    kwargs: Mapping[str, object]
    threads: int

    def calling(self, function: Callable[..., object]) -> Call:
        """Return a call of `function` on the inputs."""
        return lambda: function(*self.args, **self.kwargs)


# Prepares a model to be called; may add notes for the table.
Prepare = Callable[[Subject, list[str]], Call]


def eager(subject: Subject, notes: list[str]) -> Call:
    """Plain torch."""
    return subject.calling(subject.module)


def inductor(subject: Subject, notes: list[str]) -> Call:
    """`torch.compile` with its defaults.

    Compilations are isolated here and below, as if each contender had its own process.
    """
    return subject.calling(torch.compile(subject.module, isolate_recompiles=True))


def onnxruntime(subject: Subject, notes: list[str]) -> Call:
    """The model exported to ONNX, on onnxruntime's CPU provider."""
    import onnxruntime as ort

    tensors = dict(tensors_in((subject.args, dict(subject.kwargs))))
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.onnx"))
        with _silent():
            program = torch.onnx.export(
                subject.module, subject.args, kwargs=dict(subject.kwargs), dynamo=True, verbose=False
            )
            program.save(path)
        options = ort.SessionOptions()
        options.intra_op_num_threads = subject.threads
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    if len(names) != len(tensors):
        raise RuntimeError(f"the ONNX model takes {len(names)} inputs, the model {len(tensors)}")
    arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors.values(), strict=True)}
    return lambda: [torch.from_numpy(array) for array in session.run(None, arrays)]


def openvino_backend(subject: Subject, notes: list[str]) -> Call:
    """OpenVINO's own backend of `torch.compile`; its default on many CPUs is less than float32."""
    with _silent():
        import openvino.torch  # noqa: F401  # registers the backend

    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": subject.threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    # Without aot_autograd it does not freeze weights, and with torch 2.13 it fails on most models.
    options = {"config": config, "aot_autograd": True}
    call = subject.calling(
        torch.compile(subject.module, backend="openvino", options=options, isolate_recompiles=True)
    )
    with _complaints() as complaints:
        call()
    # It reports this only in a log.
    notes.extend(f"leaves a graph to torch: {complaint}" for complaint in dict.fromkeys(complaints))
    return call


def openvino_by_hand(subject: Subject, notes: list[str]) -> Call:
    """The model exported, converted and compiled with OpenVINO's own functions."""
    with _silent():
        import openvino

        program = torch.export.export(subject.module, subject.args, dict(subject.kwargs), strict=False)
        model = openvino.convert_model(program)
    config = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": subject.threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(model, "CPU", config)
    arrays = [tensor.numpy() for _, tensor in tensors_in((subject.args, dict(subject.kwargs)))]
    if len(compiled.inputs) != len(arrays):
        raise RuntimeError(
            f"the converted model takes {len(compiled.inputs)} inputs, the model {len(arrays)}"
        )
    request = compiled.create_infer_request()

    def call() -> list[torch.Tensor]:
        request.infer(arrays, share_inputs=True)
        return [torch.from_numpy(request.get_output_tensor(index).data.copy()) for index in outputs]

    outputs = range(len(compiled.outputs))
    return call


@contextlib.contextmanager
def _complaints() -> Iterator[list[str]]:
    """Collect what OpenVINO's backend logs when it leaves a graph to torch."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if "Failed in OpenVINO" in text or "Falling back" in text:
                found.append(" ".join(text.split())[:200])

    logger_names = [f"openvino.frontend.pytorch.torchdynamo.{name}" for name in ("backend", "execute")]
    before = [(logger, logger.level) for logger in map(logging.getLogger, logger_names)]
    handler = Collect()
    for logger, _ in before:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    try:
        yield found
    finally:
        for logger, level in before:
            logger.removeHandler(handler)
            logger.setLevel(level)


def torchport_compile(subject: Subject, notes: list[str]) -> Call:
    """`torchport.compile`, from an empty cache."""
    compiled = torchport.compile(
        subject.module,
        subject.args,
        subject.kwargs,
        target="openvino",
        options={"threads": subject.threads, "cache": False},
    )
    return subject.calling(compiled)


def torchport_backend(subject: Subject, notes: list[str]) -> Call:
    """`torch.compile(model, backend="torchport")`, from an empty cache."""
    options = {"target": "openvino", "threads": subject.threads, "cache": False}
    return subject.calling(
        torch.compile(subject.module, backend="torchport", options=options, isolate_recompiles=True)
    )


def torchport_onnxruntime(subject: Subject, notes: list[str]) -> Call:
    """`torchport.compile` with the target onnxruntime, from an empty cache."""
    options = {"threads": subject.threads, "cache": False}
    compiled = torchport.compile(
        subject.module, subject.args, subject.kwargs, target="onnxruntime", options=options
    )
    return subject.calling(compiled)


def torchport_inductor(subject: Subject, notes: list[str]) -> Call:
    """`torchport.compile` with the target inductor, from an empty cache."""
    compiled = torchport.compile(
        subject.module, subject.args, subject.kwargs, target="inductor", options={"cache": False}
    )
    return subject.calling(compiled)


def torchport_auto(subject: Subject, notes: list[str]) -> Call:
    """`torchport.compile` with the target auto, from an empty cache: the engine that it finds fastest."""
    compiled = torchport.compile(subject.module, subject.args, subject.kwargs, target="auto")
    assert compiled.tries is not None
    notes.append(f"chose {compiled.tries.chosen} in {compiled.tries.seconds:.0f} s")
    return subject.calling(compiled)


def torchport_frozen(subject: Subject, notes: list[str]) -> Call:
    """The same with the model declared frozen, as onnxruntime and OpenVINO by hand assume."""
    compiled = torchport.compile(
        subject.module, subject.args, subject.kwargs, target="auto", options={"frozen": True}
    )
    return subject.calling(compiled)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Suppress what a library prints while it is imported or exports."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


OTHERS: dict[str, Prepare] = {
    "eager": eager,
    "inductor": inductor,
    "openvino-backend": openvino_backend,
    "onnxruntime": onnxruntime,
    "openvino-by-hand": openvino_by_hand,
}
OURS: dict[str, Prepare] = {
    "torchport": torchport_compile,
    "torchport-backend": torchport_backend,
    "torchport-onnxruntime": torchport_onnxruntime,
    "torchport-inductor": torchport_inductor,
    "torchport-auto": torchport_auto,
    "torchport-frozen": torchport_frozen,  # after auto, whose choice is then in the cache
}
CONTENDERS = OTHERS | OURS

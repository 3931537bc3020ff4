"""The record of a compiled model in a file: everything but the tensors' bytes. See docs/packages.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torchport.records.generation_form import GenerationForm
from torchport.records.program_record import IslandMeta, ProgramRecord
from torchport.records.quantization import QuantizationPlan
from torchport.records.record import Record
from torchport.records.tries import Tries


@dataclass(frozen=True, slots=True)
class StoredTensor(Record):
    """A tensor whose bytes are in the file.

    Args:
        shape, dtype: as in `TensorSpec`.
        strides: its strides.
        digest: the digest of its bytes, by `digest_of`.
        parts: for a payload that shares weights with others, the byte ranges that it is assembled from. Each
            is a tensor's name in `Package.tensors`, a start and a length; an empty name means its own bytes.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    digest: str
    parts: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class InputTensor(Record):
    """An input tensor of a program.

    Args:
        shape, dtype: as in `TensorSpec`.
        device: torch's name for its device.
        strides: its strides; empty if it is contiguous.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PackagedProgram(Record):
    """A serialized compiled program.

    Args:
        record: its program record.
        graph: the host's graph: calls of ops.
        inputs: the structure of the inputs.
        result: the structure of the result.
        leaves: the tensors of the inputs.
        autocast: whether autocast was on, and its dtype.
        tensors: the graph's attributes, each with its tensor's name in `Package.tensors`.
        guards: the guards on dynamic input sizes, as terms; dynamic sizes are -1 in `leaves`.
    """

    record: ProgramRecord
    graph: dict[str, object]
    inputs: dict[str, object]
    result: dict[str, object]
    leaves: tuple[InputTensor, ...]
    autocast: tuple[bool, str]
    tensors: dict[str, str]
    guards: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class PackagedGraph(Record):
    """A model's own graph, serialized: it serves inputs that no program was built for.

    Args:
        island: an island of the target `host`, with guards on the sizes of its inputs.
        tensor: the name of its payload in `Package.tensors`.
    """

    island: IslandMeta
    tensor: str


@dataclass(frozen=True, slots=True)
class PackagedGeneration(Record):
    """How a packaged model generates.

    Args:
        form: how its programs are called.
        calls: the programs of each call, as indices into `Package.programs`: the model's, or the encoder's
            and the decoder's.
        model_class: the model's class, whose library provides the generation loop.
        attention: the library's name for the attention that it was compiled with; masks depend on it.
        config, generation_config: the library's own configurations.
    """

    form: GenerationForm
    calls: tuple[tuple[int, ...], ...]
    model_class: str
    attention: str
    config: dict[str, object]
    generation_config: dict[str, object]


@dataclass(frozen=True, slots=True)
class Package(Record):
    """A serialized compiled model.

    Args:
        model: the model's name.
        target: the target that it was built for.
        programs: one program for each kind of inputs, that of the example inputs first.
        graphs: the model's own graph, if the file holds it; at most one.
        tensors: payloads and weights, keyed by where their bytes are: `MODEL/NAME` in the archive.
        versions: the versions of torchport, torch and the target's library at build time.
        tries: the outcome for each engine, if the target was chosen by `auto`.
        plan: the precision of each layer, if the model was quantized.
        generation: how it generates, for a generating model; its programs are among `programs`.
    """

    schema: ClassVar[str] = "torchport.package/4"

    model: str
    target: str
    programs: tuple[PackagedProgram, ...]
    graphs: tuple[PackagedGraph, ...]
    tensors: dict[str, StoredTensor]
    versions: dict[str, str]
    tries: Tries | None = None
    plan: QuantizationPlan | None = None
    generation: PackagedGeneration | None = None


@dataclass(frozen=True, slots=True)
class PackageSummary(Record):
    """What a file holds.

    Args:
        path: the file.
        format: `pt2`, or `pt` for TorchScript.
        bytes: its size.
        model: the model's name.
        target: the target that it was built for.
        programs: one program for each kind of inputs.
        versions: the versions of torchport, torch and the target's library at build time.
        tries: the outcome for each engine, if the target was chosen by `auto`.
        generation: how it generates, for a generating model.
    """

    schema: ClassVar[str] = "torchport.package_summary/1"

    path: str
    format: str
    bytes: int
    model: str
    target: str
    programs: tuple[ProgramRecord, ...]
    versions: dict[str, str]
    tries: Tries | None = None
    generation: GenerationForm | None = None


@dataclass(frozen=True, slots=True)
class OutputSummary(Record):
    """An output tensor of a run.

    Args:
        path: where it is in the result.
        shape, dtype: as in `TensorSpec`.
        minimum, maximum, mean: statistics of its values; None if it is empty or complex.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float | None
    maximum: float | None
    mean: float | None


@dataclass(frozen=True, slots=True)
class PackageRun(Record):
    """A run of a model from a file.

    Args:
        path: the file.
        model: the model's name.
        target: the target that it was built for.
        load_time, first_call_time, call_time: in seconds; `call_time` is that of the second call.
        outputs: the outputs of the first call.
    """

    schema: ClassVar[str] = "torchport.package_run/1"

    path: str
    model: str
    target: str
    load_time: float
    first_call_time: float
    call_time: float
    outputs: tuple[OutputSummary, ...]

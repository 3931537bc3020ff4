"""A compiled model in a file: all of it but the tensors' bytes. See docs/packages.md."""

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
        strides: where its elements lie.
        digest: of its bytes, by `digest_of`.
        parts: of a payload that shares weights with others: the bytes that it is put together from. Each is
            a tensor's name in `Package.tensors`, a start and a length; no name stands for its own bytes.
    """

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    digest: str
    parts: tuple[tuple[str, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class InputTensor(Record):
    """A tensor that a program takes.

    Args:
        shape, dtype: as in `TensorSpec`.
        device: torch's name of it.
        strides: its strides; empty if it is contiguous.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PackagedProgram(Record):
    """A compiled program, written down.

    Args:
        record: all that there is to know of it.
        graph: the host's graph: calls of ops.
        inputs: the structure of the inputs.
        result: the structure of what it returns.
        leaves: the tensors of the inputs.
        autocast: whether autocast was on, and its dtype.
        tensors: what the graph's attributes are, by their names in `Package.tensors`.
        guards: what must hold of the inputs' sizes, as terms, if some are open: those are -1 in `leaves`.
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
    """A model's own graph, written down: for inputs that no program was built for.

    Args:
        island: an island of the target `host`, with guards on the sizes of its inputs.
        tensor: its payload, by its name in `Package.tensors`.
    """

    island: IslandMeta
    tensor: str


@dataclass(frozen=True, slots=True)
class PackagedGeneration(Record):
    """How a compiled model generates, written down.

    Args:
        form: how its programs are called.
        calls: the programs of each call, by their places in `Package.programs`: the model's, or an encoder's
            and its decoder's.
        model_class: the class of the model, whose library has the loop.
        attention: the library's name of the attention that it was compiled with; masks depend on it.
        config, generation_config: the library's own.
    """

    form: GenerationForm
    calls: tuple[tuple[int, ...], ...]
    model_class: str
    attention: str
    config: dict[str, object]
    generation_config: dict[str, object]


@dataclass(frozen=True, slots=True)
class Package(Record):
    """A compiled model, written down.

    Args:
        model, target: what was built for what.
        programs: one for each kind of inputs; that of the example inputs first.
        graphs: the model's own graph, if the file holds it; one at most.
        tensors: payloads and weights, by where their bytes are: `MODEL/NAME` of the archive.
        versions: of torchport, torch and the target's library at build time.
        tries: what came of each engine, where the target was chosen by `auto`.
        plan: what each layer computes in, if the model was quantized.
        generation: how it generates, if it does; its programs are among `programs`.
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
        model, target: what was built for what.
        programs: one for each kind of inputs.
        versions: of torchport, torch and the target's library at build time.
        tries: what came of each engine, where the target was chosen by `auto`.
        generation: how it generates, if it does.
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
    """A tensor that a run gave.

    Args:
        path: where it is in the result.
        shape, dtype: as in `TensorSpec`.
        minimum, maximum, mean: of its values; None if it has none, or they are complex.
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
        model, target: what was built for what.
        load_time, first_call_time, call_time: in seconds; the last is that of a second call.
        outputs: what the first call gave.
    """

    schema: ClassVar[str] = "torchport.package_run/1"

    path: str
    model: str
    target: str
    load_time: float
    first_call_time: float
    call_time: float
    outputs: tuple[OutputSummary, ...]

"""What a device plug-in must answer: its options, its decompositions, its verdicts, build and load."""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, runtime_checkable

import numpy
import torch
from torch import fx
from typing_extensions import TypeVar

from torchport.errors import TargetError, nearest
from torchport.records import OpTime, TensorSpec, Verdict
from torchport.targets.open_sizes import IslandSizes
from torchport.torch_private import OpOverload, all_op_names

Decompositions = Mapping[OpOverload, Callable[..., object]]
Runner = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
Meanwhile = Callable[[], object]

_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")


@runtime_checkable
class RunsBeside(Protocol):
    """A runner whose device leaves the calling thread free while it computes."""

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        ...

    def run_overlapped(
        self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile | None
    ) -> list[torch.Tensor]:
        """Run the island once, and `meanwhile` beside it; what that raises is raised when both are done."""
        ...


@dataclass(frozen=True)
class Options:
    """The options that every target has; a target's own dataclass adds to them.

    Args:
        keep_ops: ops that stay on the host, such as `aten.softmax.int` or `aten.softmax`.
        keep_modules: modules whose ops stay on the host, by path, such as `encoder.layer.0`.
        min_island_size: islands of fewer ops stay on the host.
        check: whether each built island is compared with eager on the example inputs before use.
        speed_trial: whether each built island is timed against eager on the example inputs before use; what
            is slower stays on the host.
        cache: whether built islands are kept on disk and used again.
        child_trial: whether each island is built, loaded and run in a child process first: what crashes there
            stays on the host. One from the cache was.
        frozen: the model does not change any more, so that calls need not look whether it did.
    """

    keep_ops: tuple[str, ...] = ()
    keep_modules: tuple[str, ...] = ()
    min_island_size: int = 1
    check: bool = True
    speed_trial: bool = True
    cache: bool = True
    child_trial: bool = False
    frozen: bool = False


OptionsT = TypeVar("OptionsT", bound=Options, default=Any)


def choice(default: str, choices: Collection[str]) -> Any:
    """Return the field of an option that is one of several texts; others are refused by name."""
    return field(default=default, metadata={"choices": tuple(choices)})


@dataclass(frozen=True, slots=True)
class Island:
    """A piece of the graph that a target builds.

    Args:
        name: its name in the program.
        graph_module: placeholders are its inputs, `get_attr` its frozen weights, a tuple its output.
        inputs, outputs: the tensors that cross; an open size of theirs is -1.
        sizes: how open sizes depend on each other, if there are any. The artefact's properties must hold
            those of `sizes.properties()`.
    """

    name: str
    graph_module: fx.GraphModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: IslandSizes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """What a target built: bytes, and what its loader must know to use them.

    Args:
        payload: the bytes, as a one-dimensional array of uint8; may be mapped from a file.
        properties: JSON-ready facts for the target's own `load`. They may come from a stranger's file, as the
            bytes may: `load` checks them.
        digest: the payload's, as `digest_of` gives it, where somebody computed it already.
    """

    payload: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]
    properties: dict[str, object]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a target works on this machine.

    Args:
        ok: whether it does.
        detail: what is there or missing, in a sentence.
        remedy: what to do if it is missing.
        version: of the target's library.
        devices: the devices it sees.
    """

    ok: bool
    detail: str = ""
    remedy: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OwnWeight:
    """A weight in a target's own narrow floats.

    Args:
        dtype: what the target calls them.
        values: what they hold, in the dtype that the weight had.
        bytes: what they take on the device.
    """

    dtype: str
    values: torch.Tensor
    bytes: int


class OutOfRange(Exception):
    """An island's input holds values that it was not built for; the caller runs the call on the host."""


class GaveNaN(OutOfRange):
    """An island's output holds NaN, and only torch can tell whether it should.

    Args:
        results: all outputs of the island.
    """

    def __init__(self, results: list[torch.Tensor]) -> None:
        super().__init__("an output holds NaN")
        self.results = results


class Target(ABC, Generic[OptionsT]):
    """A device plug-in, with options of its own type."""

    name: ClassVar[str]
    description: ClassVar[str]
    options_type: type[OptionsT] = Options  # type: ignore[assignment]  # those that every target has
    build_format: ClassVar[int] = 1  # raised whenever `build` writes something other than before
    device_types: ClassVar[frozenset[str]] = frozenset({"cpu"})  # whose tensors its islands take
    recomputes_in_training: ClassVar[bool] = False  # rather than to keep what products take in both passes
    is_timed: ClassVar[bool] = True  # whether its time here means something: not if it is only simulated

    @abstractmethod
    def availability(self) -> Availability:
        """Say whether the target works here; must not raise."""

    def check_ready(self, options: OptionsT) -> None:  # a target without a device is always ready
        """Refuse, before anything is built, what cannot work: a missing library, an absent device.

        Raises:
            TargetError: says what is missing and how to get it.
        """

    @abstractmethod
    def version(self) -> str:
        """Return what a built island depends on: the version of the target's library."""

    @abstractmethod
    def decompositions(self) -> Decompositions:
        """Return the ops that are to be taken apart before any verdict is asked, with how."""

    def training_decompositions(self) -> Decompositions:
        """Return the same for the graphs of training, where weights are inputs and gradients are computed."""
        return self.decompositions()

    def kept_composites(self) -> Collection[OpOverload]:
        """Return the composite ops, which torch takes apart by itself, that are to stay whole."""
        return ()

    def prepare(self, graph_module: fx.GraphModule) -> None:  # most targets need none
        """Look over the whole graph, once, before verdicts are asked; may leave notes in `node.meta`."""

    @abstractmethod
    def verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Say whether the target computes this node as torch does."""

    def takes_open_sizes(self, options: OptionsT) -> bool:
        """Whether one island may be for all sizes of some dimensions; each size is built for otherwise."""
        return False

    def open_verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Say whether a node can be built for all sizes of its open dimensions.

        Asked of targets that take open sizes, of nodes that have such. That the node is computed as torch
        does at their extremes is asked of `verdict`, about copies of the graph for these sizes.
        """
        return Verdict(False, "shape", f"{node.target} is built for fixed sizes only", "fix the dimension")

    def is_low_precision(self, options: OptionsT) -> bool:
        """Whether the device was asked to compute in less than float32."""
        return False

    @abstractmethod
    def build(self, island: Island, options: OptionsT) -> Artifact:
        """Compile an island; raises TargetError if the target's compiler refuses it."""

    @abstractmethod
    def load(
        self,
        artifact: Artifact,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        options: OptionsT,
    ) -> Runner:
        """Return a function that runs a built island; it is called from several threads."""

    def embed(self, artifact: Artifact, runner: Runner, options: OptionsT) -> Artifact:
        """Return an artefact that loads faster on a device like this one, for a package; or the same one.

        It must load elsewhere as well: the device's own compiled form stands beside the portable form.

        Args:
            artifact: the built island.
            runner: what `load` made of it.
            options: what it was built with.
        """
        return artifact

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return where in the payload weights lie: starts and lengths. A package holds equal ones once.

        Args:
            artifact: what `build` or `embed` made.
        """
        return []

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return what a person may read of a built island: files by their names; kept beside the log."""
        return {}

    def emit(
        self,
        artifact: Artifact,
        examples: Sequence[torch.Tensor],
        options: OptionsT,
        title: str,
        stem: str,
        *,
        takes: Sequence[int],
        gives: Sequence[int],
    ) -> dict[str, bytes]:
        """Return a built island as a program that runs without torchport: its files by their names.

        Args:
            artifact: the built island.
            examples: inputs for it to run on, in the model's order.
            options: what it was built with.
            title: what the program says it is.
            stem: the files' name, without its ending.
            takes, gives: the places of the island's inputs and outputs, in the model's order.

        Raises:
            TargetError: the target writes no programs.
        """
        raise TargetError("the target writes no programs", where=self.name, remedy="use the target ttnn")

    def op_times(
        self, island: Island, options: OptionsT, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return how long each op of an island takes, by the engine's own clock; None if it has none.

        Args:
            island: it is built for this alone, since engines are told beforehand that they are to measure.
            options: what it is built with.
            arguments: what it is run on.
        """
        return None

    def own_weight(self, weight: torch.Tensor, bits: int) -> OwnWeight | None:
        """Return a linear layer's weight in the target's own narrow floats; None: it has none.

        Args:
            weight: a row for each output.
            bits: 8 or 4.
        """
        return None

    def simulated_seconds(self, artifact: Artifact, options: OptionsT) -> float | None:
        """Return how long an island would take on the device, where it is only simulated here."""
        return None

    def make_options(self, given: Mapping[str, object] | None) -> OptionsT:
        """Build the target's options from keywords.

        Raises:
            TargetError: a name is unknown, or a value is of the wrong kind.
        """
        defaults = dataclasses.asdict(self.options_type())
        fields = dataclasses.fields(self.options_type)
        choices = {field.name: field.metadata.get("choices", ()) for field in fields}
        values: dict[str, object] = {}
        for key, value in (given or {}).items():
            if key not in defaults:
                raise TargetError(
                    f"the target has no option {key!r}", where=self.name, remedy=nearest(key, defaults)
                )
            values[key] = _coerced(self.name, key, value, defaults[key])
            if choices[key] and values[key] not in choices[key]:
                raise TargetError(
                    f"no {key} {value!r}", where=self.name, remedy=nearest(str(value), choices[key])
                )
        _check_ops(self.name, values.get("keep_ops", ()))
        return self.options_type(**values)  # type: ignore[arg-type]  # checked against the defaults above

    def options_from_file(self, given: Mapping[str, object]) -> OptionsT:
        """Build the options that a file asks for: a package, or an island in one.

        A file is data of a stranger's. A target whose options can do more than choose how to compute, such as
        name a directory, permits here those that are harmless. Who passes options by hand is not asked.

        Raises:
            TargetError: an option is not permitted, is unknown, or is of the wrong kind.
        """
        return self.make_options(given)

    def options_json(self, options: OptionsT) -> dict[str, object]:
        """Return the options as JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(options).items()
        }


def _check_ops(target: str, names: object) -> None:
    """Refuse names that torch has no op for: `aten.softmax.int`, or `aten.softmax` for all overloads."""
    assert isinstance(names, tuple)
    if not names:
        return
    known = {name.replace("::", ".") for name in all_op_names()}
    known |= {name if "." in name[name.index(".") + 1 :] else f"{name}.default" for name in known}
    known |= {".".join(name.split(".")[:2]) for name in known}
    for name in names:
        if name not in known:
            raise TargetError(
                f"the option keep_ops names {name!r}, and torch has no such op",
                where=target,
                remedy=nearest(name, known),
            )


def _coerced(target: str, key: str, value: object, default: object) -> object:
    """Return the value in the default's type; texts come from a command line."""
    if isinstance(default, bool):
        if isinstance(value, str) and value.lower() in ("true", "false", "1", "0", "yes", "no"):
            return value.lower() in ("true", "1", "yes")
        if isinstance(value, bool):
            return value
    elif isinstance(default, int):
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            return int(value)
    elif isinstance(default, tuple):
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if isinstance(value, Sequence) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif isinstance(default, dict):
        if isinstance(value, Mapping):
            return dict(value)
    elif isinstance(value, str):
        return value
    kinds = {bool: "true or false", int: "a whole number", tuple: "a list of texts", dict: "a dict"}
    kind = kinds.get(type(default), "text")
    raise TargetError(f"the option {key!r} takes {kind}, not {value!r}", where=target)

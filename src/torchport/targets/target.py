"""The interface of a device plug-in: its options, its decompositions, its verdicts, build and load."""

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
    """A runner that leaves the calling thread free while its device computes."""

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island once."""
        ...

    def run_overlapped(
        self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile | None
    ) -> list[torch.Tensor]:
        """Run the island once, and `meanwhile` concurrently; its exception is raised when both are done."""
        ...


def choice(default: str, choices: Collection[str]) -> Any:
    """Return the dataclass field of an option that must be one of several strings."""
    return field(default=default, metadata={"choices": tuple(choices)})


def number(default: int, least: int, most: int | None = None) -> Any:
    """Return the dataclass field of an option that must be an integer in a range."""
    return field(default=default, metadata={"range": (least, most)})


@dataclass(frozen=True)
class Options:
    """The options that every target has; a target's own dataclass adds to them.

    Args:
        keep_ops: ops that stay on the host, such as `aten.softmax.int` or `aten.softmax`.
        keep_modules: modules whose ops stay on the host, by path, such as `encoder.layer.0`.
        min_island_size: islands of fewer ops stay on the host.
        check: whether each built island is compared with eager on the example inputs before use.
        speed_trial: whether each built island is timed against eager on the example inputs before use; a
            slower one stays on the host.
        cache: whether built islands are cached on disk and reused.
        child_trial: whether each island is built, loaded and run in a child process first; one that crashes
            there stays on the host. Islands from the cache have passed already.
        frozen: the model no longer changes, so calls need not check whether it did.
    """

    keep_ops: tuple[str, ...] = ()
    keep_modules: tuple[str, ...] = ()
    min_island_size: int = number(1, least=0)
    check: bool = True
    speed_trial: bool = True
    cache: bool = True
    child_trial: bool = False
    frozen: bool = False


OptionsT = TypeVar("OptionsT", bound=Options, default=Any)


@dataclass(frozen=True, slots=True)
class Island:
    """A piece of the graph that a target builds.

    Args:
        name: its name in the program.
        graph_module: placeholders are its inputs, `get_attr` nodes its frozen weights, a tuple its output.
        inputs, outputs: the tensors that cross its boundary; open sizes are -1.
        sizes: how open sizes depend on each other, if there are any. The artefact's properties must include
            `sizes.properties()`.
    """

    name: str
    graph_module: fx.GraphModule
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    sizes: IslandSizes | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """A built island: its bytes, and what the loader must know to use them.

    Args:
        payload: the bytes, as a one-dimensional array of uint8; may be memory-mapped.
        properties: JSON-serializable facts for the target's own `load`. Like the bytes, they may come from an
            untrusted file: `load` checks them.
        digest: the payload's digest by `digest_of`, if it was computed already.
    """

    payload: numpy.ndarray[tuple[int], numpy.dtype[numpy.uint8]]
    properties: dict[str, object]
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Availability:
    """Whether a target works on this machine.

    Args:
        ok: whether it does.
        detail: what is available or missing, in a sentence.
        remedy: what to do if something is missing.
        version: the version of the target's library.
        devices: the devices it finds.
    """

    ok: bool
    detail: str = ""
    remedy: str = ""
    version: str = ""
    devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class OwnWeight:
    """A weight rounded to a target's own narrow float format.

    Args:
        dtype: the target's name of the format.
        values: the rounded values, in the weight's original dtype.
        bytes: their size on the device.
    """

    dtype: str
    values: torch.Tensor
    bytes: int


class OutOfRange(Exception):
    """An island's input has values that it was not built for; the caller runs the call on the host."""


class GaveNaN(OutOfRange):
    """An island's output has NaN, and only torch can tell whether that is right.

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
    build_format: ClassVar[int] = 1  # increment whenever the output format of `build` changes
    device_types: ClassVar[frozenset[str]] = frozenset({"cpu"})  # of the tensors that its islands accept
    recomputes_in_training: ClassVar[bool] = False  # activations in backward, instead of keeping most of them
    is_timed: ClassVar[bool] = True  # whether timings here are meaningful: not if it is only simulated

    @abstractmethod
    def availability(self) -> Availability:
        """Return whether the target works here; must not raise."""

    def check_ready(self, options: OptionsT) -> None:  # a target without a device is always ready
        """Check, before anything is built, that the target's library and device are there.

        Raises:
            TargetError: says what is missing and how to get it.
        """

    @abstractmethod
    def version(self) -> str:
        """Return the version of the target's library, which built islands depend on."""

    @abstractmethod
    def decompositions(self) -> Decompositions:
        """Return the decompositions to apply before any verdict, by op."""

    def training_decompositions(self) -> Decompositions:
        """Return the decompositions for training graphs, in which weights are inputs, with gradients."""
        return self.decompositions()

    def kept_composites(self) -> Collection[OpOverload]:
        """Return the composite ops to keep whole, which torch would decompose itself."""
        return ()

    def prepare(self, graph_module: fx.GraphModule) -> None:  # most targets need none
        """Analyze the whole graph once, before any verdict; may leave notes in `node.meta`."""

    @abstractmethod
    def verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Return whether the target computes this node as torch does."""

    def takes_open_sizes(self, options: OptionsT) -> bool:
        """Whether one island can serve all sizes of some dimensions; if not, each size is built for."""
        return False

    def open_verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Return whether a node can be built for all sizes of its open dimensions.

        Called for nodes with open sizes, if the target takes open sizes. Whether the node is computed as
        torch does at the extremes is left to `verdict`, called on copies of the graph with those sizes.
        """
        return Verdict(False, "shape", f"{node.target} is built for fixed sizes only", "fix the dimension")

    def is_low_precision(self, options: OptionsT) -> bool:
        """Whether the options make the device compute in lower precision than float32."""
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
        """Return a function that runs a built island; it may be called from several threads."""

    def embed(self, artifact: Artifact, runner: Runner, options: OptionsT) -> Artifact:
        """Return an artefact for a package that loads faster on a device like this one, or the same one.

        It must also load elsewhere: the device's own compiled form is stored beside the portable form.

        Args:
            artifact: the built island.
            runner: the runner that `load` returned for it.
            options: the options that it was built with.
        """
        return artifact

    def weight_places(self, artifact: Artifact) -> list[tuple[int, int]]:
        """Return the start and length of each weight in the payload. A package stores equal weights once.

        Args:
            artifact: an artefact from `build` or `embed`.
        """
        return []

    def readable(self, artifact: Artifact) -> dict[str, bytes]:
        """Return human-readable files of a built island, by name, which are kept beside the log."""
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
        """Return a built island as a program that runs without torchport: its files by name.

        Args:
            artifact: the built island.
            examples: inputs for it to run on, in the model's order.
            options: the options that it was built with.
            title: the program's title.
            stem: the files' name, without its extension.
            takes, gives: the indices of the island's inputs and outputs, in the model's order.

        Raises:
            TargetError: the target does not support it.
        """
        raise TargetError("the target writes no programs", where=self.name, remedy="use the target ttnn")

    def op_times(
        self, island: Island, options: OptionsT, arguments: Sequence[torch.Tensor]
    ) -> list[OpTime] | None:
        """Return the time of each op of an island from the engine's own profiler; None if it has none.

        Args:
            island: the island, which is built anew, since engines must enable profiling at build time.
            options: the options to build it with.
            arguments: the inputs to run it on.
        """
        return None

    def own_weight(self, weight: torch.Tensor, bits: int) -> OwnWeight | None:
        """Return a linear layer's weight in the target's own narrow float format, or None if it has none.

        Args:
            weight: the weight, with a row for each output.
            bits: 8 or 4.
        """
        return None

    def simulated_seconds(self, artifact: Artifact, options: OptionsT) -> float | None:
        """Return an island's estimated time on the device, if it is only simulated here, or None."""
        return None

    def make_options(self, given: Mapping[str, object] | None) -> OptionsT:
        """Build the target's options from keywords.

        Raises:
            TargetError: a name is unknown, or a value has the wrong type.
        """
        if not isinstance(given or {}, Mapping):
            raise TargetError(f"the options are a {type(given).__name__}, not a dict", where=self.name)
        defaults = dataclasses.asdict(self.options_type())
        fields = dataclasses.fields(self.options_type)
        choices = {field.name: field.metadata.get("choices", ()) for field in fields}
        ranges = {field.name: field.metadata["range"] for field in fields if "range" in field.metadata}
        values: dict[str, object] = {}
        for key, value in (given or {}).items():
            if key not in defaults:
                raise TargetError(
                    f"the target has no option {key!r}", where=self.name, remedy=nearest(str(key), defaults)
                )
            values[key] = _coerced(self.name, key, value, defaults[key])
            if choices[key] and values[key] not in choices[key]:
                raise TargetError(
                    f"unknown {key} {value!r}", where=self.name, remedy=nearest(str(value), choices[key])
                )
            if key in ranges:
                _check_range(self.name, key, values[key], *ranges[key])
        _check_ops(self.name, values.get("keep_ops", ()))
        return self.options_type(**values)  # type: ignore[arg-type]  # checked against the defaults above

    def options_from_file(self, given: Mapping[str, object]) -> OptionsT:
        """Build the options from a file: a package, or an island in one.

        Files are untrusted. A target whose options can do more than choose how to compute, such as name a
        directory, permits only harmless ones here. Options that a caller passes directly are not restricted.

        Raises:
            TargetError: an option is not permitted, is unknown, or has the wrong type.
        """
        return self.make_options(given)

    def options_json(self, options: OptionsT) -> dict[str, object]:
        """Return the options as JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(options).items()
        }


def _check_range(target: str, key: str, value: object, least: int, most: int | None) -> None:
    if not isinstance(value, int) or value < least or (most is not None and value > most):
        allowed = f"at least {least}" if most is None else f"between {least} and {most}"
        raise TargetError(f"{key} must be {allowed}, not {value!r}", where=target)


def _check_ops(target: str, names: object) -> None:
    """Reject names of unknown ops; `aten.softmax.int` is one overload, `aten.softmax` all of them."""
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
    """Return the value converted to the default's type; strings come from the command line."""
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
    kinds = {bool: "true or false", int: "an integer", tuple: "a list of strings", dict: "a dict"}
    kind = kinds.get(type(default), "a string")
    raise TargetError(f"the option {key!r} takes {kind}, not {value!r}", where=target)

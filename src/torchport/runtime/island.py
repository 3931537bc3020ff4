"""Runs `torchport::island`: finds the loaded island, loading it on first use, and calls it."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.utils.weak import WeakIdKeyDictionary

from torchport import targets
from torchport.errors import RecordError, RuntimeRefusal
from torchport.records import IslandMeta, TensorSpec, digest_of, parse_json
from torchport.runtime.payload_file import PAYLOAD_IN, Bytes, read_payload
from torchport.runtime.shape_guards import check_guards
from torchport.targets import Artifact, Options
from torchport.targets.mapped_payload import release_pages
from torchport.targets.open_sizes import GUARDS, output_shapes
from torchport.targets.target import Meanwhile, OutOfRange, Runner, RunsBeside


class LoadedIsland:
    """An island that is ready to run."""

    __slots__ = ("__weakref__", "_beside", "_orders", "meta", "runner")

    def __init__(self, meta: IslandMeta, runner: Runner) -> None:
        self.meta = meta
        self.runner = runner
        self._beside = runner.run_overlapped if isinstance(runner, RunsBeside) else None
        self._orders = [(index, spec) for index, spec in enumerate(meta.outputs) if spec.order]

    def __call__(self, arguments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run the island; its results have the memory layout that eager torch's would have."""
        return self._ordered(self.runner(arguments))

    def run_overlapped(self, arguments: Sequence[torch.Tensor], meanwhile: Meanwhile) -> list[torch.Tensor]:
        """Run the island, and `meanwhile` concurrently if the device can, else before it."""
        if self._beside is not None:
            return self._ordered(self._beside(arguments, meanwhile))
        meanwhile()
        return self(arguments)

    def _ordered(self, results: list[torch.Tensor]) -> list[torch.Tensor]:
        for index, spec in self._orders:
            results[index] = _in_order(results[index], spec)
        return results


def _in_order(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    inverse = [0] * len(spec.order)
    for place, dim in enumerate(spec.order):
        inverse[dim] = place
    return tensor.permute(spec.order).contiguous().permute(inverse)


# Loaded islands by their metadata, which contains the payload's digest: an island is loaded only once
# however many programs hold it, and freed with the last of them.
_loaded: weakref.WeakValueDictionary[str, LoadedIsland] = weakref.WeakValueDictionary()
# Islands called only through the op, from TorchScript, have no program that holds them. They are freed with
# the payload, which the TorchScript holds.
_of_payload: WeakIdKeyDictionary = WeakIdKeyDictionary()
_lock = threading.Lock()


def load_island(
    blob: torch.Tensor, meta: str, options: Options | None = None, *, is_checked: bool = False
) -> LoadedIsland:
    """Return the loaded island for a payload and its metadata.

    Args:
        blob: the payload.
        meta: the metadata.
        options: the options of the caller who built it. If None, the metadata's are used, which may be
            untrusted: the target then accepts only harmless ones.
        is_checked: whether the metadata's digest was just computed from this payload.

    Raises:
        RuntimeRefusal: the payload does not match the metadata.
        TargetError: the target is not installed, or rejects the payload.
    """
    found = _loaded.get(meta)
    if found is not None:
        return found
    with _lock:
        found = _loaded.get(meta)
        if found is None:
            found = _load(blob, meta, options, is_checked)
            _loaded[meta] = found
        return found


def alias_island(meta: str, island: LoadedIsland) -> None:
    """Make a loaded island available under other metadata that describes the same island."""
    with _lock:
        _loaded.setdefault(meta, island)


def _load(blob: torch.Tensor, meta: str, options: Options | None, is_checked: bool) -> LoadedIsland:
    record = parse_meta(meta)
    if PAYLOAD_IN in record.properties:
        payload, is_checked = read_payload(record.properties[PAYLOAD_IN], record.name), False
    else:
        payload = _bytes_of(blob, record.name)
    if not is_checked and digest_of(payload.data) != record.digest:
        raise RuntimeRefusal(
            "the island's payload is damaged: its checksum does not match",
            where=record.name,
            remedy="compile the model again",
        )
    target = targets.find(record.target)
    chosen = target.options_from_file(record.options) if options is None else options
    artifact = Artifact(payload, record.properties, record.digest)
    runner = target.load(artifact, record.inputs, record.outputs, chosen)
    release_pages(payload)  # most engines now hold the weights in their own form
    return LoadedIsland(record, runner)


def _bytes_of(blob: torch.Tensor, where: str) -> Bytes:
    if blob.dtype is not torch.uint8 or blob.dim() != 1 or blob.device.type != "cpu":
        raise RuntimeRefusal("the island's payload is not a one-dimensional uint8 tensor", where=where)
    found: Bytes = blob.detach().contiguous().numpy()
    return found


@functools.lru_cache(maxsize=256)
def parse_meta(meta: str) -> IslandMeta:
    """Return an island's metadata from its JSON.

    Raises:
        RecordError: it is not the JSON of an island's metadata.
    """
    made = IslandMeta.from_json(parse_json(meta, "an island's metadata"))
    for spec in (*made.inputs, *made.outputs):
        if spec.order and sorted(spec.order) != list(range(len(spec.shape))):
            raise RecordError(f"{list(spec.order)!r:.80} is not an order of {len(spec.shape)} dimensions")
    return made


def run_island(blob: torch.Tensor, meta: str, args: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Run an island on tensors: the kernel of the op.

    Raises:
        RuntimeRefusal: the island was not built for these tensors. A caller of the op has no model to fall
            back to.
    """
    held: dict[str, LoadedIsland] | None = _of_payload.get(blob)
    if held is None:
        held = _of_payload.setdefault(blob, {})
    island = held.get(meta)
    if island is None:
        island = held[meta] = load_island(blob, meta)
    check_inputs(island.meta, args)
    try:
        return island(args)
    except OutOfRange as reason:
        raise RuntimeRefusal(str(reason), where=island.meta.name, remedy=NO_MODEL) from reason


NO_MODEL = "save the model with its graph (with_graph=True), or run these inputs with the original model"


def check_inputs(meta: IslandMeta, args: Sequence[torch.Tensor]) -> None:
    """Refuse tensors that an island was not built for.

    Raises:
        RuntimeRefusal: names the tensor, or the guard on sizes that fails.
    """
    if len(args) != len(meta.inputs):
        raise RuntimeRefusal(f"got {len(args)} tensors, expected {len(meta.inputs)}", where=meta.name)
    for index, (argument, spec) in enumerate(zip(args, meta.inputs, strict=True)):
        if not _fits(argument, spec):
            given = TensorSpec(tuple(argument.shape), str(argument.dtype).removeprefix("torch."))
            raise RuntimeRefusal(
                f"input {index} is {given}, but the island was built for {spec}",
                where=meta.name,
                remedy="compile the model for inputs of this shape too",
            )
    if GUARDS in meta.properties:
        check_guards(meta.properties[GUARDS], [argument.shape for argument in args], meta.name)


def _fits(argument: torch.Tensor, spec: TensorSpec) -> bool:
    """Whether a tensor has the spec's shape and dtype; a size of -1 matches any."""
    return (
        argument.dtype is getattr(torch, spec.dtype, None)
        and len(spec.shape) == argument.dim()
        and all(wanted in (-1, size) for size, wanted in zip(argument.shape, spec.shape, strict=True))
    )


def infer_island(meta: str, device: torch.device, args: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
    """Return empty tensors like an island's outputs, on `device`: the op's fake implementation.

    Raises:
        RuntimeRefusal: the metadata, perhaps a file's, does not define valid output sizes.
    """
    record = parse_meta(meta)
    try:
        shapes = output_shapes(record.properties, [argument.shape for argument in args])
    except (TypeError, ValueError, IndexError, ZeroDivisionError) as error:
        raise RuntimeRefusal("the island's sizes are not valid", where=record.name) from error
    if shapes is None:
        return [empty_like_spec(spec, device) for spec in record.outputs]
    specs = [replace(spec, shape=shape) for spec, shape in zip(record.outputs, shapes, strict=False)]
    return [empty_like_spec(spec, device) for spec in specs]


def empty_like_spec(spec: TensorSpec, device: torch.device | str = "meta") -> torch.Tensor:
    """Return an empty tensor of the spec's shape, dtype and memory layout."""
    empty = torch.empty(spec.shape, dtype=getattr(torch, spec.dtype), device=device)
    return _in_order(empty, spec) if spec.order else empty

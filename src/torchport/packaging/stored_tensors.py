"""The tensors of a package: each record of the archive is read once, however many tensors refer to it."""

from __future__ import annotations

import math

import torch

from torchport.errors import PackageError
from torchport.packaging.archive import Archive, in_memory, weight_files
from torchport.packaging.structure_json import dtype_of
from torchport.records import Package, StoredTensor, digest_of
from torchport.runtime.payload_file import MOST_REPEATED
from torchport.targets.mapped_payload import new_payload


class StoredTensors:
    """The tensors of a package.

    Args:
        archive: the archive that holds their bytes.
        package: the package's description, with the tensors' shapes and dtypes.
    """

    def __init__(self, archive: Archive, package: Package) -> None:
        self._archive = archive
        self._stored = package.tensors
        self._files: dict[str, dict[str, str]] = {}
        self._bytes: dict[str, torch.Tensor] = {}
        self._digests: dict[str, str] = {}
        self._tensors: dict[str, torch.Tensor] = {}
        self._payloads: dict[str, int] = {}

    def read(self, key: str) -> torch.Tensor:
        """Return a tensor; tensors stored in the same record share memory."""
        if key not in self._tensors:
            own = self._read_record(key)
            stored = self._stored[key]
            payload = self._put_together(own, stored, key) if stored.parts else own
            self._tensors[key] = _view(payload, stored, key)
        return self._tensors[key]

    def _read_record(self, key: str) -> torch.Tensor:
        record = self._record(key)
        if record not in self._bytes:
            # Payloads (1-D bytes) are never written to, so a forked process may share their memory.
            is_payload = self._stored[key].dtype == "uint8" and len(self._stored[key].shape) == 1
            room = new_payload if is_payload else in_memory
            self._bytes[record] = torch.from_numpy(self._archive.bytes(record, check=False, room=room))
        return self._bytes[record]

    def _put_together(self, own: torch.Tensor, stored: StoredTensor, key: str) -> torch.Tensor:
        """Reassemble a payload that has some of its weights in other records."""
        total = math.prod(stored.shape)
        if sum(size for _, _, size in stored.parts) != total or stored.dtype != "uint8":
            raise PackageError(f"{key!r} does not have the size of its parts")
        # Before allocating: parts may refer to the same bytes many times.
        self._count(key, total)
        made = torch.from_numpy(new_payload(total))
        at = 0
        for name, start, size in stored.parts:
            if name and (name not in self._stored or self._stored[name].parts):
                raise PackageError(f"{key!r} has a part in {name[:80]!r}, which has no bytes of its own")
            source = self._read_record(name) if name else own
            if start < 0 or size < 0 or start + size > source.numel():
                raise PackageError(f"{key!r} has a part that is out of bounds")
            made[at : at + size] = source[start : start + size]
            at += size
        return made

    def check(self, key: str) -> None:
        """Refuse a tensor whose bytes do not match its digest."""
        record = self._record(key)
        if record not in self._digests:
            self._digests[record] = digest_of(self._bytes[record].numpy().data)
        if self._digests[record] != self._stored[key].digest:
            raise PackageError(
                f"{key!r} is damaged: its checksum does not match", remedy="get the file again"
            )

    def check_alone(self, key: str) -> None:
        """Refuse a mutated tensor that shares its bytes with another one."""
        record = self._record(key)
        if any(other != key and self._record(other) == record for other in self._stored):
            raise PackageError(f"{key!r} is mutated by the program, but shares its bytes with another tensor")

    def count_payload(self, key: str, meta: str, size: int) -> None:
        """Refuse islands that repeat the same bytes too often: each island takes its own memory.

        Args:
            key: the payload's name.
            meta: the island's metadata.
            size: the payload's size in bytes.
        """
        self._payloads.pop(key, None)  # counted under `key` if reassembled; count it once, per island
        self._count(meta, size)

    def _count(self, name: str, size: int) -> None:
        self._payloads[name] = size
        if sum(self._payloads.values()) > MOST_REPEATED * self._archive.size:
            raise PackageError("the islands' payloads are many times as large as the file")

    def _record(self, key: str) -> str:
        """Return the archive's record that holds a tensor's bytes."""
        model, _, name = key.partition("/")
        if key not in self._stored:
            raise PackageError(f"the package has no tensor {key[:80]!r}")
        if model not in self._files:
            self._files[model] = weight_files(self._archive, model)
        try:
            return self._files[model][f"program.{name}"]
        except KeyError as error:
            raise PackageError(f"the archive has no bytes for {key[:80]!r}") from error


def _view(payload: torch.Tensor, stored: StoredTensor, key: str) -> torch.Tensor:
    """View a tensor in these bytes."""
    dtype = dtype_of(stored.dtype)
    sizes = (*stored.shape, *stored.strides)
    if any(size < 0 for size in sizes) or len(stored.shape) != len(stored.strides):
        raise PackageError(f"{key!r} has the impossible shape {stored.shape} or strides {stored.strides}")
    elements = math.prod(stored.shape)
    last = sum((size - 1) * stride for size, stride in zip(stored.shape, stored.strides, strict=True))
    if elements * dtype.itemsize != payload.numel() or (elements and last >= elements):
        raise PackageError(f"{key!r} does not have the size of its bytes")
    if not elements:
        return torch.empty(stored.shape, dtype=dtype)
    return payload.view(dtype).as_strided(stored.shape, stored.strides)

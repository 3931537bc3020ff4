"""The kind of a program's inputs: everything the program depends on except their values."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchport.errors import RuntimeRefusal
from torchport.runtime.shape_guards import holds
from torchport.structure import Flat, Structure

LeafKey = tuple[torch.Size, torch.dtype, torch.device, "tuple[int, ...] | None"]
# A quick key to compare calls by, read in C without a Python-level function.
_form = operator.attrgetter("shape", "dtype", "device", "layout")


def key_of(leaf: torch.Tensor) -> LeafKey:
    """Return everything about an input tensor that a program depends on, except its values."""
    plain = leaf.layout is not torch.strided or leaf.is_contiguous()
    return leaf.shape, leaf.dtype, leaf.device, None if plain else leaf.stride()


def autocast_key(device: str = "cpu") -> tuple[bool, torch.dtype]:
    """Return the autocast state for a device type, which determines the dtypes in the captured graph."""
    return torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)


def _device_type(keys: Sequence[LeafKey]) -> str:
    """Return the device type whose autocast state applies: each type has its own."""
    return "cuda" if any(device.type == "cuda" for _, _, device, _ in keys) else "cpu"


def refuse_gradients(flat: Flat, where: str, remedy: str) -> None:
    """Refuse inputs that require gradients.

    Raises:
        RuntimeRefusal: an input requires gradients, and grad mode is on.
    """
    if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in flat.leaves):
        raise RuntimeRefusal(
            "an input requires gradients, which a compiled model does not compute", where=where, remedy=remedy
        )


def _fits_shape(shape: torch.Size, wanted: torch.Size) -> bool:
    """Whether a shape matches the wanted one, in which -1 matches any size."""
    return len(shape) == len(wanted) and all(
        other in (-1, size) for size, other in zip(shape, wanted, strict=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class InputKind:
    """The kind of inputs that a program was built for.

    Args:
        structure: the structure of `(args, kwargs)`.
        keys: a key for each input tensor; an open size is -1.
        autocast: the autocast state in which the model was captured.
        guards: if some sizes are open, the guards on them, as terms; tensors must then be contiguous.
    """

    structure: Structure
    keys: tuple[LeafKey, ...]
    autocast: tuple[bool, torch.dtype]
    guards: tuple[object, ...] = ()
    # With open sizes, the forms of the inputs that matched last: most calls repeat the previous one's.
    _fitting: list[list[Any]] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def of(cls, structure: Structure, leaves: Sequence[torch.Tensor]) -> InputKind:
        """Return the kind of these inputs, under the current autocast state."""
        keys = tuple(key_of(leaf) for leaf in leaves)
        return cls(structure, keys, autocast_key(_device_type(keys)))

    def fits(self, flat: Flat) -> bool:
        """Whether the program was built for inputs like these."""
        return (
            (self.structure is flat.structure or self.structure == flat.structure)
            and self.fits_leaves(flat.leaves)
            and self.fits_autocast()
        )

    def fits_autocast(self) -> bool:
        """Whether the autocast state is the one in which the model was captured."""
        return self.autocast == autocast_key(_device_type(self.keys))

    def fits_leaves(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether the program was built for tensors like these."""
        if not self.guards:
            return self.keys == tuple([key_of(leaf) for leaf in leaves])
        forms = list(map(_form, leaves))
        if forms in self._fitting and all(map(torch.Tensor.is_contiguous, leaves)):
            return True
        given = [key_of(leaf) for leaf in leaves]
        fits = (
            len(given) == len(self.keys)
            and all(
                _fits_shape(key[0], wanted[0]) and key[1:] == wanted[1:]
                for key, wanted in zip(given, self.keys, strict=True)
            )
            and self.holds_for([key[0] for key in given])
        )
        if fits and all(leaf.layout is torch.strided and leaf.is_contiguous() for leaf in leaves):
            self._fitting[:] = [forms]
        return fits

    def why_not(self, flat: Flat) -> str:
        """Say why the program does not take inputs like these, without their sizes; empty if it does."""
        if self.structure != flat.structure:
            return "the inputs have another structure"
        if not self.fits_autocast():
            return "autocast was on or off, or had another dtype"
        return self.why_not_leaves(flat.leaves, flat.structure.paths)

    def why_not_leaves(self, leaves: Sequence[torch.Tensor], paths: Sequence[str]) -> str:
        """Say why the program does not take tensors like these, without their sizes; empty if it does.

        Args:
            leaves: the tensors, as many as the program has.
            paths: the name of each.
        """
        for path, leaf, wanted in zip(paths, leaves, self.keys, strict=True):
            key = key_of(leaf)
            if key[1:3] != wanted[1:3]:
                return f"{path} has another dtype or device"
            if key[3] != wanted[3]:
                return f"{path} is not contiguous" if key[3] else f"{path} has another memory order"
        return "" if self.fits_leaves(leaves) else "the program for all sizes is not correct for some"

    def holds_for(self, shapes: Sequence[torch.Size]) -> bool:
        """Whether all guards hold for these shapes."""
        return all(holds(guard, shapes) for guard in self.guards)

    def with_open_sizes(self, shapes: Sequence[Sequence[int]], guards: Sequence[object]) -> InputKind:
        """Return the same kind with other shapes and guards.

        Args:
            shapes: the tensors' sizes; -1 for open ones.
            guards: the guards on the sizes, as terms.
        """
        keys = [(torch.Size(shape), *key[1:]) for shape, key in zip(shapes, self.keys, strict=True)]
        return InputKind(self.structure, tuple(keys), self.autocast, tuple(guards))

"""What a program depends on besides values: the kind of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchport.errors import RuntimeRefusal
from torchport.structure import Flat, Structure

LeafKey = tuple[torch.Size, torch.dtype, torch.device, "tuple[int, ...] | None"]


def key_of(leaf: torch.Tensor) -> LeafKey:
    """Return all of an input tensor that a program depends on, but its values."""
    plain = leaf.layout is not torch.strided or leaf.is_contiguous()
    return leaf.shape, leaf.dtype, leaf.device, None if plain else leaf.stride()


def autocast_key() -> tuple[bool, torch.dtype]:
    """Return the state of autocast, which decides the dtypes of what is captured."""
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")


def refuse_gradients(flat: Flat, where: str, remedy: str) -> None:
    """Refuse inputs that ask for gradients.

    Raises:
        RuntimeRefusal: one does.
    """
    if torch.is_grad_enabled() and any(leaf.requires_grad for leaf in flat.leaves):
        raise RuntimeRefusal(
            "an input requires gradients, which a compiled model does not compute", where=where, remedy=remedy
        )


@dataclass(frozen=True, slots=True, eq=False)
class InputKind:
    """The kind of inputs that a program was built for.

    Args:
        structure: the structure of `(args, kwargs)`.
        keys: one for each tensor of them.
        autocast: the state of autocast that the model was captured in.
    """

    structure: Structure
    keys: tuple[LeafKey, ...]
    autocast: tuple[bool, torch.dtype]

    @classmethod
    def of(cls, structure: Structure, leaves: Sequence[torch.Tensor]) -> InputKind:
        """Return the kind of these inputs, here and now."""
        return cls(structure, tuple(key_of(leaf) for leaf in leaves), autocast_key())

    def fits(self, flat: Flat) -> bool:
        """Whether the program was built for inputs like these."""
        return (
            (self.structure is flat.structure or self.structure == flat.structure)
            and self.keys == tuple([key_of(leaf) for leaf in flat.leaves])
            and self.autocast == autocast_key()
        )

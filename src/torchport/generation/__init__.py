"""A model that generates → its own library's loop around a compiled call, which extends a cache."""

from torchport.generation.generating import can_generate

__all__ = ["can_generate"]

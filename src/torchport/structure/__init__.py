"""Any Python value ↔ its tensors and a `Structure` that rebuilds it from them.

torch's pytrees handle registered classes only; this handles every class that can be copied: containers,
named tuples, dataclasses, model outputs, caches, and user-defined classes.
"""

from torchport.structure.flatten import Flat, call_arguments, flatten, flatten_call, tensors_in
from torchport.structure.nodes import Structure, same_value
from torchport.structure.plain_containers import tensors_within

__all__ = [
    "Flat",
    "Structure",
    "call_arguments",
    "flatten",
    "flatten_call",
    "same_value",
    "tensors_in",
    "tensors_within",
]

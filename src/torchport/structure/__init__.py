"""Any Python value ↔ its tensors and a `Structure` that puts them together again.

torch's pytrees know a list of classes; this knows every class that can be copied: containers,
named tuples, dataclasses, model outputs, caches, and whatever a user wrote.
"""

from torchport.structure.flatten import Flat, flatten, flatten_call, tensors_in
from torchport.structure.nodes import Structure, same_value

__all__ = ["Flat", "Structure", "flatten", "flatten_call", "same_value", "tensors_in"]

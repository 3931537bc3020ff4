"""A model → a stand-in to run in its place; the model, its functions and torch's state stay unchanged."""

from torchport.capture.untouched.function_caches import nothing_remembered
from torchport.capture.untouched.restored_values import buffers_kept, values_kept
from torchport.capture.untouched.stand_in import StandIn
from torchport.capture.untouched.substitutes import Once, copy_of, faker
from torchport.capture.untouched.torch_state import leaves_torch_as_it_was, torch_as_it_was

__all__ = [
    "buffers_kept", "copy_of", "faker", "leaves_torch_as_it_was", "nothing_remembered", "Once", "StandIn",
    "torch_as_it_was", "values_kept",
]  # fmt: skip

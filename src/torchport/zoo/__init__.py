"""A model's name → its module, with example inputs to run it on."""

from torchport.zoo.collections import ZOOS, list_zoo
from torchport.zoo.hf_small import load_small_hf, small_hf_names
from torchport.zoo.loading import load, names
from torchport.zoo.model import Model
from torchport.zoo.user_file import load_function, load_value

__all__ = [
    "Model", "ZOOS", "list_zoo", "load", "load_function", "load_small_hf", "load_value", "names",
    "small_hf_names",
]  # fmt: skip

"""A model's name comes in; the module and example inputs to run it on go out."""

from torchport.zoo.collections import ZOOS, list_zoo
from torchport.zoo.loading import load, names
from torchport.zoo.model import Model
from torchport.zoo.small import load_small_hf, small_hf_names

__all__ = ["Model", "ZOOS", "list_zoo", "load", "names", "load_small_hf", "small_hf_names"]

"""Lets the tests import transformers at their head, which imports torchvision."""

from torchport.zoo.torchvision_ops import ensure_torchvision_ops

ensure_torchvision_ops()

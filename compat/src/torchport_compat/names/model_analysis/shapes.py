"""Shapes and dtypes of every module's inputs and outputs, recorded by torchport as a model runs."""

from torchport.capture import stream_ops

__all__ = ["stream_ops"]

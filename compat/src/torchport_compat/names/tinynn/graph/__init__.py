"""Graphs of models: `tracer`, and `quantization`."""

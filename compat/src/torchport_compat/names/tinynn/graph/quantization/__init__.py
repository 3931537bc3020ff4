"""Quantization: `quantizer`."""

"""Decompositions of training ops for ttnn: those that its library lacks, or lacks in float32."""

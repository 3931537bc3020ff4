"""torchport's tracer and quantization under the name of TinyNeuralNetwork."""

from torchport_compat.naming import claim

claim(__name__)

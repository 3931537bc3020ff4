"""A captured model and a target → a compiled model; also the torch.compile backend, and the dry run."""

from torchport.compiler.compile_model import compile
from torchport.compiler.compiled_model import CompiledModel
from torchport.compiler.explain_model import explain

__all__ = ["CompiledModel", "compile", "explain"]

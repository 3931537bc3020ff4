"""torchport brings a PyTorch model up on an accelerator and proves that it works there.

Everything here is imported when it is first used, so that `import torchport` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from torchport.version import __version__

if TYPE_CHECKING:
    from torchport import structure, zoo
    from torchport.analysis import analyze, extract_pytorch_ops, extract_unique_modules
    from torchport.bringup import run_bench, run_benches, run_generation
    from torchport.codegen import TraceGraph, model_tracer, trace_graph
    from torchport.compiler import CompiledModel
    from torchport.compiler.backend import backend
    from torchport.compiler.compile_model import compile
    from torchport.compiler.explain_model import explain
    from torchport.compiler.graph_programs import fallbacks
    from torchport.errors import TorchportError
    from torchport.packaging.inspect_file import inspect_package
    from torchport.packaging.load_model import load
    from torchport.packaging.run_file import run_package
    from torchport.packaging.save_model import save
    from torchport.packaging.trace_model import trace
    from torchport.survey import run_survey
    from torchport.verification import compare

_WHERE = {
    "CompiledModel": "torchport.compiler",
    "TorchportError": "torchport.errors",
    "analyze": "torchport.analysis",
    "TraceGraph": "torchport.codegen",
    "backend": "torchport.compiler.backend",
    "compare": "torchport.verification",
    "compile": "torchport.compiler",
    "explain": "torchport.compiler",
    "extract_pytorch_ops": "torchport.analysis",
    "extract_unique_modules": "torchport.analysis",
    "fallbacks": "torchport.compiler.graph_programs",
    "inspect_package": "torchport.packaging.inspect_file",
    "load": "torchport.packaging.load_model",
    "model_tracer": "torchport.codegen",
    "run_bench": "torchport.bringup",
    "run_benches": "torchport.bringup",
    "run_generation": "torchport.bringup",
    "run_survey": "torchport.survey",
    "run_package": "torchport.packaging.run_file",
    "save": "torchport.packaging.save_model",
    "trace": "torchport.packaging.trace_model",
    "trace_graph": "torchport.codegen",
}
_STAGES = (
    "bringup",
    "analysis",
    "capture",
    "codegen",
    "compiler",
    "generation",
    "packaging",
    "records",
    "report",
    "structure",
    "survey",
    "targets",
    "verification",
    "zoo",
)

__all__ = [
    "CompiledModel",
    "TorchportError",
    "TraceGraph",
    "__version__",
    "analyze",
    "backend",
    "compare",
    "compile",
    "explain",
    "extract_pytorch_ops",
    "extract_unique_modules",
    "fallbacks",
    "inspect_package",
    "load",
    "model_tracer",
    "run_bench",
    "run_benches",
    "run_generation",
    "run_package",
    "run_survey",
    "save",
    "trace",
    "structure",
    "trace_graph",
    "zoo",
]


def __getattr__(name: str) -> object:
    if name in _WHERE:
        return getattr(import_module(_WHERE[name]), name)
    if name in _STAGES:
        return import_module(f"torchport.{name}")
    raise AttributeError(f"module 'torchport' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_STAGES})

"""torchport brings a PyTorch model up on an accelerator and proves that it works there.

Every name is imported lazily, on first use, so `import torchport` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING

from torchport.version import __version__

if TYPE_CHECKING:
    from torchport import structure, zoo
    from torchport.analysis import analyze, extract_pytorch_ops, extract_unique_modules
    from torchport.bringup import (
        BenchSettings,
        RooflineLimits,
        profile,
        run_bench,
        run_benches,
        run_generation,
    )
    from torchport.codegen import TraceGraph, model_tracer, trace_graph
    from torchport.compiler import CompiledModel
    from torchport.compiler.backend import backend
    from torchport.compiler.compile_model import compile
    from torchport.compiler.explain_generation import explain_generation
    from torchport.compiler.explain_model import explain
    from torchport.compiler.graph_programs import fallbacks
    from torchport.errors import TorchportError
    from torchport.generation import analyze_generation
    from torchport.packaging.inspect_file import inspect_package
    from torchport.packaging.load_model import load
    from torchport.packaging.run_file import run_package
    from torchport.packaging.save_model import save
    from torchport.packaging.trace_model import TraceSettings, trace
    from torchport.quantization import AccuracyBudget, QuantizationOptions, QuantizedModel, quantize
    from torchport.survey import SurveySettings, run_survey
    from torchport.verification import compare

_NAMES = {
    "analysis": ("analyze", "extract_pytorch_ops", "extract_unique_modules"),
    "bringup": ("BenchSettings", "RooflineLimits", "profile", "run_bench", "run_benches", "run_generation"),
    "codegen": ("TraceGraph", "model_tracer", "trace_graph"),
    "compiler": ("CompiledModel", "compile", "explain"),
    "compiler.backend": ("backend",),
    "compiler.explain_generation": ("explain_generation",),
    "compiler.graph_programs": ("fallbacks",),
    "errors": ("TorchportError",),
    "generation": ("analyze_generation",),
    "packaging.inspect_file": ("inspect_package",),
    "packaging.load_model": ("load",),
    "packaging.run_file": ("run_package",),
    "packaging.save_model": ("save",),
    "packaging.trace_model": ("TraceSettings", "trace"),
    "quantization": ("AccuracyBudget", "QuantizationOptions", "QuantizedModel", "quantize"),
    "survey": ("SurveySettings", "run_survey"),
    "survey.stat.backend": ("stat_backend",),
    "verification": ("compare",),
}
_WHERE = {name: f"torchport.{where}" for where, names in _NAMES.items() for name in names}
_STAGES = (
    "analysis", "bringup", "capture", "codegen", "compiler", "generation", "packaging", "quantization",
    "records", "report", "structure", "survey", "targets", "verification", "zoo",
)  # fmt: skip

__all__ = [
    "AccuracyBudget", "BenchSettings", "CompiledModel", "QuantizationOptions", "QuantizedModel",
    "SurveySettings", "TorchportError", "TraceGraph", "TraceSettings",
    "__version__", "analyze", "analyze_generation", "backend", "compare", "compile", "explain",
    "explain_generation", "extract_pytorch_ops", "extract_unique_modules", "fallbacks", "inspect_package",
    "load", "model_tracer", "profile", "quantize", "RooflineLimits", "run_bench", "run_benches",
    "run_generation", "run_package", "run_survey", "save", "structure", "trace", "trace_graph", "zoo",
]  # fmt: skip

# Without this lock, a thread that imports a package while another imports one of its modules could see a
# partially initialized module. Stages are imported without it: they import each other, and a thread that
# holds an import lock must not wait for this one.
_importing = RLock()


def __getattr__(name: str) -> object:
    if name in _WHERE:
        with _importing:
            return getattr(import_module(_WHERE[name]), name)
    if name in _STAGES:
        return import_module(f"torchport.{name}")
    raise AttributeError(f"module 'torchport' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE, *_STAGES})

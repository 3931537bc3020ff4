"""Writes a model from the zoo as code, and returns a record of the result."""

from __future__ import annotations

import re
import time
from pathlib import Path

from torchport.capture import OnDataDependent
from torchport.codegen.code import identifier, is_name
from torchport.codegen.trace_graph import trace_graph
from torchport.records import GeneratedCode
from torchport.zoo import Model


def write_model(
    model: Model,
    code_path: str | Path | None = None,
    *,
    weights_path: str | Path | None = None,
    class_name: str = "",
    hierarchy: bool = True,
    shapes: bool = False,
    on_data_dependent: OnDataDependent = "error",
) -> GeneratedCode:
    """Trace a model and write it as a Python file and a weights file.

    Args:
        model: the model, with example inputs.
        code_path: the Python file; if None, nothing is written or verified.
        weights_path: the weights file, `.pth` or `.safetensors`; by default `.pth` beside the code.
        class_name: the name of the model's class; by default derived from the model's name.
        hierarchy: whether submodules become classes of their own; if not, there is one flat class.
        shapes: whether to add the shapes of results as comments.
        on_data_dependent: `error`, or `specialize` to keep data-dependent control flow with a guard.

    Returns:
        The code, and facts about it.

    Raises:
        CaptureError: the model cannot be traced.
        CodegenError: the model cannot be written, or the generated code's results differ.
    """
    class_name = class_name or _class_name(model.name)
    start = time.perf_counter()
    graph = trace_graph(model.module, model.args, model.kwargs, on_data_dependent=on_data_dependent)
    traced = time.perf_counter()
    name = Path(weights_path).name if weights_path else (Path(code_path).stem + ".pth" if code_path else "")
    code = graph.to_code(class_name, weights=name, hierarchy=hierarchy, shapes=shapes)
    written = time.perf_counter()
    has_values = not any(tensor.is_meta for tensor in model.module.parameters())
    weights = ""
    if code_path is not None:
        target = Path(weights_path) if weights_path else Path(code_path).with_suffix(".pth")
        graph.generate_code(code_path, target, class_name, hierarchy=hierarchy, shapes=shapes)
        weights = str(target) if has_values and target.exists() else ""
    return GeneratedCode(
        model=model.name,
        class_name=class_name,
        code=code,
        code_path=str(code_path or ""),
        weights_path=weights,
        classes=len(re.findall(r"^class ", code, re.M)),
        lines=code.count("\n"),
        nodes=len(graph.graph.nodes),
        verified=code_path is not None and has_values,
        trace_time=traced - start,
        code_time=written - traced,
    )


def _class_name(model: str) -> str:
    """Return a class name for a model.

    Example:
        >>> _class_name("torchvision:vit_b_16")
        'VitB16'
    """
    last = re.split(r"[:/]+", model)[-1]
    name = "".join(part[:1].upper() + part[1:] for part in identifier(last).split("_"))
    return name if is_name(name) else f"{name}Model"

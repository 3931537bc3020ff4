"""Writes a program as a Python script and a weights file; the script needs only ttnn, numpy, safetensors."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

import safetensors.torch
import torch

from torchport.targets.ttnn.ttnn_program import (
    L1_SMALL_BYTES,
    Argument,
    Call,
    Crossing,
    Make,
    Name,
    Ref,
    TtnnProgram,
)
from torchport.version import __version__

_WIDTH = 110
_LAYOUTS = {"tile": "TILE_LAYOUT", "row_major": "ROW_MAJOR_LAYOUT"}

_HEAD = '''"""{title}: {count} calls of ttnn, written by torchport {version}.

    python {script}     # opens the device, runs once on the example inputs and prints the outputs

Needs ttnn, numpy and safetensors. Weights and example inputs are in {weights}.
Peak device memory: {peak:,} bytes.
"""

from pathlib import Path

import numpy
import ttnn
from safetensors.numpy import load_file

FILE = Path(__file__).with_name({file!r})


def read():
    """Return the arrays in the file; bfloat16, which numpy lacks, is stored as its 16 bits."""
    found = {{}}
    for name, array in load_file(FILE).items():
        kind, _, name = name.partition(":")
        if kind == "bfloat16":
            array = numpy.left_shift(array, 16, dtype=numpy.uint32).view(numpy.float32)
        found[name] = array
    return found


def on_device(array, dtype, layout, device):
    """Return an array as a tensor on the device; what is finite stays finite in bfloat16."""
    kind = {{ttnn.int32: numpy.int32, ttnn.uint32: numpy.uint32}}.get(dtype, numpy.float32)
    sent = numpy.asarray(array, dtype=kind, order="C")
    if kind is not numpy.float32 and not numpy.array_equal(sent, array):
        raise OverflowError(f"an array holds integers that {{numpy.dtype(kind)}} does not")
    if dtype == ttnn.bfloat16:
        most = numpy.float32({most!r})
        sent = numpy.where(numpy.isinf(sent), sent, sent.clip(-most, most))
    return ttnn.Tensor(sent, dtype, device, layout)


def check(array, low, high):
    """Raise if an array holds integers for which the program was not written."""
    if array.size and not low <= array.min() <= array.max() <= high:
        raise OverflowError(f"an input holds values outside {{low}} … {{high}}")


def make_compute(device):
    """Return the compute kernel config, which sets the precision of kernels."""
    return ttnn.init_device_compute_kernel_config(
        device.arch(),
        math_fidelity=ttnn.MathFidelity.{fidelity},
        math_approx_mode=False,
        fp32_dest_acc_en=True,
        packer_l1_acc=True,
    )
'''

_TAIL = '''

def main():
    """Run once on the example inputs."""
    device = ttnn.open_device(device_id={device_id}, l1_small_size={l1_small})
    try:
        arrays = read()
        outputs = run(device, load(device, arrays){examples})
        for output in outputs:
            print(output.dtype, output.shape)
    finally:
        ttnn.close_device(device)


if __name__ == "__main__":
    main()
'''


def emit(
    program: TtnnProgram,
    weights: Mapping[str, torch.Tensor],
    examples: Sequence[torch.Tensor],
    *,
    title: str,
    stem: str,
    device_id: int = 0,
    ranges: Mapping[str, tuple[int, int]] | None = None,
) -> dict[str, bytes]:
    """Return the script and the weights file, by file name.

    Args:
        program, weights: the built program and its weights.
        examples: the inputs that the script runs on.
        title: the title in the script's docstring.
        stem: the files' name, without its extension.
        device_id: which chip the script opens.
        ranges: the bounds of inputs with integers, by their names in the program.
    """
    names = [f"example_{place}" for place in range(len(examples))]
    given = "".join(f", arrays[{_quoted(name)}]" for name in names)
    text = (
        _HEAD.format(
            title=as_comment(title), count=len(program.calls), version=__version__,
            script=as_comment(f"{stem}.py"), weights=as_comment(f"{stem}.safetensors"),
            file=f"{stem}.safetensors", fidelity=program.math_fidelity, peak=program.peak_bytes,
            most=torch.finfo(torch.bfloat16).max,
        )
        + _load(program)
        + _run(program, ranges or {})
        + _TAIL.format(device_id=device_id, l1_small=L1_SMALL_BYTES, examples=given)
    )  # fmt: skip
    stored = dict(_named(name, tensor) for name, tensor in weights.items())
    stored.update(_named(name, tensor) for name, tensor in zip(names, examples, strict=True))
    return {f"{stem}.py": text.encode(), f"{stem}.safetensors": safetensors.torch.save(stored)}


def _named(name: str, tensor: torch.Tensor) -> tuple[str, torch.Tensor]:
    """Return a tensor in a form that numpy can read, and its name with the encoding as prefix."""
    tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
    if tensor.dtype is torch.bfloat16:
        return f"bfloat16:{name}", tensor.view(torch.uint16)
    return f"plain:{name}", tensor


def _load(program: TtnnProgram) -> str:
    lines = [
        "",
        "",
        "def load(device, arrays):",
        '    """Move the weights to the device, once."""',
        "    w = {}",
    ]
    if program.load:
        lines.append("    compute = make_compute(device)")
    for weight in program.weights:
        value = f"arrays[{_quoted(weight.name)}]"
        if weight.on_device:
            place = f"ttnn.{weight.tensor.dtype}, ttnn.{_LAYOUTS[weight.tensor.layout]}, device"
            lines.append(f"    {_weight(weight.name)} = on_device({value}, {place})")
        else:
            lines.append(f"    {_weight(weight.name)} = ttnn.Tensor({value}, ttnn.{weight.tensor.dtype})")
    weights = _weight_names(program)
    for call in program.load:
        lines += _assignment(_weight(call.results[0]), call, weights, "")
    return "\n".join([*lines, "    return w", ""])


def _weight_names(program: TtnnProgram) -> set[str]:
    return {weight.name for weight in program.weights} | {
        name for call in program.load for name in call.results
    }


def _run(program: TtnnProgram, ranges: Mapping[str, tuple[int, int]]) -> str:
    inputs = [crossing.name for crossing in program.inputs]
    lines = ["", "", f"def run(device, w{''.join(f', {name}' for name in inputs)}):"]
    lines += [
        '    """Run the model; takes its inputs and returns its outputs as arrays, in the model\'s order."""',
        *(f"    check({name}, {ranges[name][0]}, {ranges[name][1]})" for name in inputs if name in ranges),
        "    compute = make_compute(device)",
    ]
    for crossing in program.inputs:
        lines += _sent(crossing)
    weights = _weight_names(program)
    module = ""
    for call in program.calls:
        if call.module != module:
            module = call.module
            lines += ["", f"    # {as_comment(module)}"] if module else [""]
        lines += _assignment(call.results[0], call, weights, f"  # {call.tensors[0]}")
        freed = [name for name in call.frees if name not in weights]
        if freed:
            lines.append(f"    del {', '.join(freed)}")
    outputs = [_received(crossing, weights) for crossing in program.outputs]
    return "\n".join([*lines, "", "    return [", *[f"        {item}," for item in outputs], "    ]", ""])


def _sent(crossing: Crossing) -> list[str]:
    name, lines = crossing.name, []
    if crossing.order:
        lines.append(f"    {name} = {name}.transpose({', '.join(map(str, crossing.order))})")
    if crossing.order or crossing.host_shape != crossing.tensor.shape:
        lines.append(f"    {name} = {name}.reshape({_plain(crossing.tensor.shape)})")
    place = f"ttnn.{crossing.tensor.dtype}, ttnn.{_LAYOUTS[crossing.tensor.layout]}, device"
    return [*lines, f"    {name} = on_device({name}, {place})  # {crossing.tensor}"]


def _received(crossing: Crossing, weights: set[str]) -> str:
    name = _weight(crossing.name) if crossing.name in weights else crossing.name
    value = f"{name}.to_numpy()"
    if crossing.order:
        moved = [crossing.host_shape[place] for place in crossing.order]
        inverse = sorted(range(len(crossing.order)), key=crossing.order.__getitem__)
        value += f".reshape({_plain(tuple(moved))}).transpose({', '.join(map(str, inverse))})"
    elif crossing.host_shape != crossing.tensor.shape:
        value += f".reshape({_plain(crossing.host_shape)})"
    kind = "float32" if crossing.host_dtype == "bfloat16" else crossing.host_dtype
    return (
        value if kind == crossing.tensor.dtype else f"{value}.astype(numpy.{kind.replace('bool', 'bool_')})"
    )


def _assignment(target: str, call: Call, weights: set[str], comment: str) -> list[str]:
    """Return a call as code: on one line if it fits, else with its arguments on lines of their own."""
    parts = [_text(item, weights) for item in call.args]
    parts += [f"{key}={_text(item, weights)}" for key, item in call.kwargs]
    line = f"    {target} = ttnn.{call.function}({', '.join(parts)}){comment}"
    if len(line) <= _WIDTH:
        return [line]
    lines = [f"    {target} = ttnn.{call.function}({comment}"]
    for part in parts:  # as many in a line as fit
        if len(lines) > 1 and len(lines[-1]) + len(part) + 2 <= _WIDTH:
            lines[-1] += f" {part},"
        else:
            lines.append(f"        {part},")
    return [*lines, "    )"]


def _text(argument: Argument, weights: set[str]) -> str:
    if isinstance(argument, Ref):
        return _weight(argument.name) if argument.name in weights else argument.name
    if isinstance(argument, Name):
        return argument.path if argument.path in ("device", "compute") else f"ttnn.{argument.path}"
    if isinstance(argument, Make):
        parts = [_text(item, weights) for item in argument.args]
        parts += [f"{key}={_text(item, weights)}" for key, item in argument.kwargs]
        return f"ttnn.{argument.function}({', '.join(parts)})"
    if isinstance(argument, tuple):
        return f"[{', '.join(_text(item, weights) for item in argument)}]"
    return _plain(argument)


def as_comment(text: str) -> str:
    """Return a text made safe for a comment or docstring: without line breaks, quotes or escapes."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown.replace("\\", "/").replace('"', "'")


def _quoted(text: str) -> str:
    """Return a text as a string literal."""
    return json.dumps(text)


def _weight(name: str) -> str:
    return f"w[{_quoted(name)}]"


def _plain(value: object) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)

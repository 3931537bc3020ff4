"""Untrusted programs: only torchport's own vocabulary is looked up, written into scripts or run."""

from __future__ import annotations

import ast
import copy
import subprocess
import sys
import types

import numpy
import pytest
import torch

from targets.ttnn.hostile import built, load_and_run, program_json, with_program
from torchport import targets
from torchport.errors import TargetError, TorchportError
from torchport.targets import Artifact
from torchport.targets.ttnn.builder import Builder
from torchport.targets.ttnn.emit import emit
from torchport.targets.ttnn.execution import Execution
from torchport.targets.ttnn.format import unpack
from torchport.targets.ttnn.ttnn_program import DEVICE, Call, DeviceTensor, Name, TtnnProgram
from without_assertions import PRELUDE


@pytest.fixture(scope="module")
def island():
    return built()


def call_of(program: dict, function: str) -> dict:
    return next(call for call in program["calls"] if call["function"] == function)


def set_in(section: str, key: str, value: object):
    def change(program: dict) -> None:
        program[section][-1][key] = value

    return change


def set_argument(value: object):
    return set_in("calls", "args", [value])


def set_keyword(key: str, value: object):
    def change(program: dict) -> None:
        program["calls"][-1]["kwargs"][key] = value

    return change


def set_head(key: str, value: object):
    def change(program: dict) -> None:
        program[key] = value

    return change


def rename_result(name: str):
    def change(program: dict) -> None:
        [old] = program["calls"][0]["results"]
        text = repr(program).replace(f"'{old}'", repr(name))
        program.clear()
        program.update(ast.literal_eval(text))

    return change


def fill(shape: list[int]):
    def change(program: dict) -> None:
        tensor = {"shape": [4], "dtype": "bfloat16", "layout": "tile"}
        full = {
            "function": "full", "args": [shape, 0.5], "results": ["filled"], "tensors": [tensor], "frees": [],
            "kwargs": {
                "dtype": {"name": "bfloat16"}, "layout": {"name": "TILE_LAYOUT"},
                "device": {"name": "device"},
            },
            "module": "",
        }  # fmt: skip
        program["calls"].insert(0, full)

    return change


def fill_often(program: dict) -> None:
    """Fill several tensors, each of which fits a chip while all together do not."""
    for number in range(4):
        fill([5 * 2**30])(program)
        program["calls"][0]["results"] = [f"filled_{number}"]
        program["calls"][0]["tensors"][0]["shape"] = [5 * 2**30]


ATTACKS = {
    "a function of another module": set_in("calls", "function", "os.system"),
    "a dunder": set_in("calls", "function", "__class__"),
    "a function that torchport never emits": set_in("load", "function", "open_device"),
    "a name of another module": set_argument({"name": "os.system"}),
    "a name in a list": set_argument([[{"name": "os.environ"}]]),
    "an object of another module": set_argument({"make": ["os.system", ["true"], {}]}),
    "an object's argument": set_argument({"make": ["UnaryWithParam", [{"name": "sys.modules"}], {}]}),
    "an object's keyword": set_argument({"make": ["Conv2dConfig", [], {"x=1": 1}]}),
    "a keyword that is code": set_keyword("dim=__import__('os')", 1),
    "a text": set_keyword("mode", "/etc/passwd"),
    "a fidelity": set_head("math_fidelity", "__class__"),
    "a fidelity of another kind": set_head("math_fidelity", 4),
    "a dtype": set_in("weights", "tensor", {"shape": [1], "dtype": "os", "layout": "tile"}),
    "a layout": set_in("weights", "tensor", {"shape": [1], "dtype": "float32", "layout": "x"}),
    "a host's dtype": set_in("outputs", "host_dtype", "__class__"),
    "a name that is code": rename_result("x = __import__('os').system('true')"),
    "a name with a line break": rename_result("x\nimport os"),
    "a name that a script uses": rename_result("ttnn"),
    "a name that is a keyword": rename_result("lambda"),
    "a freed name that is not there": set_in("calls", "frees", ["nothing"]),
    "freed twice": set_in("calls", "frees", ["x", "x"]),
    "a tensor that is not there": set_argument({"ref": "nothing"}),
    "a result that is there already": set_in("calls", "results", ["argument_0"]),
    "two results": set_in("calls", "results", ["a", "b"]),
    "no result": set_in("calls", "results", []),
    "an output that is not there": set_in("outputs", "name", "nothing"),
    "an order that is none": set_in("inputs", "order", [0, 0, 0, 0]),
    "an order out of range": set_in("inputs", "order", [9, 1, 2, 3]),
    "a shape below zero": set_in("inputs", "host_shape", [-1, 3, 8, 8]),
    "a huge tensor": set_in("weights", "tensor", {"shape": [10**12], "dtype": "float32", "layout": "tile"}),
    "a huge tensor that it does not declare": fill([10**12]),
    "a tensor of another shape than it declares": fill([5]),
    "more memory in all than there is": fill_often,
    "a number beyond 64 bits": set_argument(10**30),
    "other arguments": set_argument(7),
    "a weight that is missing": set_in("weights", "name", "absent"),
    "a list that is none": set_head("calls", 7),
    "an input of another kind": set_head("inputs", [3]),
    "a schema": set_head("schema", "torchport.ttnn_program/9"),
    "an argument of no kind": set_argument({"ref": "x", "name": "y"}),
    "a float that is code": set_argument({"float": "__import__"}),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_program_that_torchport_does_not_write_is_refused(island, attack):
    artifact, record, x, _ = island
    program = copy.deepcopy(program_json(artifact))
    ATTACKS[attack](program)
    with pytest.raises(TorchportError):
        load_and_run(with_program(artifact, program), record, x)


def test_the_program_as_it_is_gives_what_torch_gives(island):
    artifact, record, x, expected = island
    again = with_program(artifact, program_json(artifact))
    torch.testing.assert_close(load_and_run(again, record, x), expected, rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize(
    "properties",
    [
        {"program_bytes": -1},
        {"program_bytes": 10**9},
        {"program_bytes": "7"},
        {"program_bytes": True},
        {"format": [1]},
        {"input_ranges": {"7": [0, 1]}},
        {"input_ranges": {"x": [0, 1]}},
        {"input_ranges": {"0": [0, 1]}},  # not an integer input
        {"input_ranges": []},
    ],
)
def test_properties_are_data_of_a_stranger(island, properties):
    artifact, record, x, _ = island
    with pytest.raises(TargetError):
        load_and_run(Artifact(artifact.payload, {**artifact.properties, **properties}), record, x)


def test_a_missing_property_is_refused(island):
    artifact, record, x, _ = island
    for key in ("format", "program_bytes", "input_ranges"):
        rest = {name: value for name, value in artifact.properties.items() if name != key}
        with pytest.raises(TargetError):
            load_and_run(Artifact(artifact.payload, rest), record, x)


@pytest.mark.parametrize("text", [b"{", b"[" * 100_000, b"\xff", b"1" * 5000, b"null"])
def test_what_is_no_program_is_one_message(island, text):
    artifact, record, x, _ = island
    with pytest.raises(TargetError):
        load_and_run(with_program(artifact, text), record, x)


def test_weights_that_are_cut_off_are_one_message(island):
    artifact, record, x, _ = island
    with pytest.raises(TargetError, match="cannot be read"):
        load_and_run(Artifact(artifact.payload[:-7], artifact.properties), record, x)


def test_weights_are_read_where_they_lie(island):
    artifact, *_ = island
    _, weights = unpack(artifact)
    first = artifact.payload.ctypes.data
    assert weights
    assert all(first < weight.data_ptr() < first + artifact.payload.size for weight in weights.values())


def test_a_lowering_that_emits_something_new_is_refused_at_the_build():
    with pytest.raises(TargetError, match="is not a function"):
        Builder().call("os.system")


def test_a_function_takes_its_own_keywords_alone():
    builder = Builder()
    x = builder.call("full", (2,), 0.0, dtype=Name("bfloat16"), layout=Name("TILE_LAYOUT"), device=DEVICE)
    with pytest.raises(TargetError, match="is not a keyword"):
        builder.call("relu", x, alpha=1.0)


def test_the_library_is_asked_for_names_of_the_table_alone():
    """Also for a program that was never read from a file: this is the last check before attribute access."""
    library = types.SimpleNamespace(
        os=types.SimpleNamespace(system=lambda text: text),
        MathFidelity=types.SimpleNamespace(HiFi4=4),
        init_device_compute_kernel_config=lambda *args, **kwargs: None,
    )
    tensor = DeviceTensor((1,), "float32", "tile")
    program = TtnnProgram((), (), (Call("os.system", ("true",), (), ("y",), (tensor,)),), (), ())
    device = types.SimpleNamespace(arch=lambda: "wormhole")
    with pytest.raises(TargetError, match="is not a function"):
        Execution(program, {}, library, device)


TEXTS = [
    '"""',
    "\\",
    "\n",
    "\r",
    "import os",
    "\u2028",
    "'",
    "{x}",
    "\0",
    '""" + __import__("os").abort() + """',
]


@pytest.mark.parametrize("text", TEXTS)
def test_no_text_ends_a_comment_or_docstring_of_a_script(island, text):
    """The model's name, its modules' names and the file's name are untrusted."""
    artifact, _, x, _ = island
    program = program_json(artifact)
    for call in program["calls"]:
        call["module"] = f"a{text}b"
    read, weights = unpack(with_program(artifact, program))
    files = emit(read, weights, [x], title=f"a{text}b", stem=f"a{text}b")
    plain = emit(read, weights, [x], title="ab", stem="ab")
    tree, expected = (ast.parse(next(iter(found.values()))) for found in (files, plain))
    for each in (tree, expected):  # ignore the contents of the docstring and the file's name
        each.body[0].value.value = ""
        file = next(node for node in each.body if isinstance(node, ast.Assign))
        file.value.args[0].value = ""
    assert ast.dump(tree) == ast.dump(expected)


@pytest.mark.usefixtures("forked_python")
def test_checks_do_not_vanish_under_optimisation(island, tmp_path):
    artifact = island[0]
    program = program_json(artifact)
    set_in("calls", "function", "os.system")(program)
    hostile = with_program(artifact, program)
    numpy.save(tmp_path / "payload.npy", hostile.payload)
    code = f"""{PRELUDE}
import numpy
from torchport.errors import TargetError
from torchport.targets import Artifact
from torchport.targets.ttnn.format import unpack
payload = numpy.load({str(tmp_path / "payload.npy")!r})
for properties in ({hostile.properties!r}, {{**{hostile.properties!r}, "program_bytes": None}}):
    try:
        unpack(Artifact(payload, properties))
    except TargetError:
        print("refused")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["refused", "refused"], done.stderr


def test_a_script_is_refused_where_the_program_is(island, tmp_path):
    artifact, _, x, _ = island
    program = program_json(artifact)
    rename_result("y = __import__('os').system('true')")(program)
    target = targets.find("ttnn")
    with pytest.raises(TargetError):
        target.emit(
            with_program(artifact, program), [x], target.make_options({}), "t", "s", takes=[0], gives=[0]
        )

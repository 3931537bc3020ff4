"""Arbitrary text as names: the generated code works, and no name is ever executed."""

import ast
import importlib.util
import os
import sys

import pytest
import torch
from torch import nn

import torchport
from torchport.capture.quoted_names import format_target
from torchport.codegen import trace_graph, write_model
from torchport.codegen.code import docstring, identifier, is_name, text
from torchport.codegen.imports import Imports
from torchport.errors import CodegenError
from torchport.zoo import Model

# A module's name cannot contain a dot; `exec` needs none.
CODE = 'exec("open(chr(80)+chr(87), chr(119))")'
ATTACKS = [
    f'x"); {CODE}#', f"x'); {CODE}#", f'x"]; {CODE}; self["', f"x\n{CODE}\n", f'"""\n{CODE}\n"""',
    f'\\"; {CODE}#', f"x\r{CODE}", f"{{{CODE}}}", f'x")+{CODE}+getattr(self,"x',
]  # fmt: skip
KEYS = [
    "class",
    "None",
    "a b",
    "a_b",
    "it's",
    'say "x"',
    "ключ",
    "x²",
    "ﬁ",
    "1x",
    "x-y",
    "x\\y",
    "",
    *ATTACKS,
]


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not os.path.exists("PW")


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x).relu()


class InDict(nn.Module):
    def __init__(self):
        super().__init__()
        keys = [key for key in KEYS if key]
        self.parts = nn.ModuleDict(
            {key: Inner() if place % 2 else nn.Linear(3, 3) for place, key in enumerate(keys)}
        )

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return x


class AsAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        for place, key in enumerate(KEYS):
            if key:
                self.add_module(key, Inner() if place % 2 else nn.Linear(3, 3))
        self.holder = nn.Module()
        for key in KEYS:
            if key:
                self.holder.register_parameter(key, nn.Parameter(torch.rand(3)))
                self.holder.register_buffer(f"{key} too", torch.rand(3))

    def forward(self, x):
        for key in KEYS:
            if key:
                x = getattr(self, key)(x) * getattr(self.holder, key) + getattr(self.holder, f"{key} too")
        return x


class InSequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential()
        for place, key in enumerate(KEYS):
            if key:
                self.parts.add_module(key, Inner() if place % 2 else nn.Linear(3, 3))

    def forward(self, x):
        return self.parts(x) + self.parts[0](x)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"class": nn.Linear(3, 3), 'a"]': nn.Linear(3, 3)})
        self.parts['a"]'].weight = self.parts["class"].weight

    def forward(self, x):
        return self.parts['a"]'](self.parts["class"](x))


class Numbered(nn.Module):
    """Numbered children with gaps, and names that map to the same identifier."""

    def __init__(self):
        super().__init__()
        self.parts = nn.Sequential()
        for key in ("3", "7"):
            self.parts.add_module(key, nn.Linear(3, 3))
        self.add_module("train!", nn.Linear(3, 3))
        self.add_module("forward_", nn.Linear(3, 3))

    def forward(self, x):
        return getattr(self, "train!")(self.forward_(self.parts(x)))


MODELS = [InDict, AsAttributes, InSequence, Tied, Numbered]


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("hierarchy", [True, False])
def test_modules_and_weights_of_any_name_are_written_bit_for_bit(kind, hierarchy):
    graph = trace_graph(kind().eval(), (torch.rand(2, 3),))
    code = graph.generate_code("out.py", hierarchy=hierarchy, shapes=True)  # also verifies it
    ast.parse(code)


@pytest.mark.parametrize("kind", MODELS)
def test_modules_and_weights_of_any_name_are_compiled_and_explained(kind):
    model, x = kind().eval(), torch.rand(2, 3)
    assert torchport.explain(model, (x,), target="host").complete
    torch.testing.assert_close(torchport.compile(model, (x,), target="host")(x), model(x))


@pytest.mark.parametrize("name", ["class", *ATTACKS])
def test_classes_of_any_name(name):
    inner = type(name, (Inner,), {})
    outer = type(name, (nn.Sequential,), {"forward": lambda self, x: self[0](x) * 2})
    graph = trace_graph(outer(inner()).eval(), (torch.rand(2, 3),))
    code = graph.generate_code("out.py")
    ast.parse(code)
    assert "written by torchport" in ast.get_docstring(ast.parse(code))


@pytest.mark.parametrize("name", ["class", "x y", "ﬁ", "", *ATTACKS])
def test_an_invalid_class_name_is_refused(name):
    graph = trace_graph(Inner().eval(), (torch.rand(2, 3),))
    for write in (graph.to_code, lambda class_name: graph.generate_code("out.py", class_name=class_name)):
        with pytest.raises(CodegenError, match="is not a valid class name"):
            write(class_name=name)


@pytest.mark.parametrize("name", [attack.replace("/", "") for attack in ATTACKS])
def test_files_and_models_of_any_name(name):
    graph = trace_graph(Inner().eval(), (torch.rand(2, 3),))
    ast.parse(graph.generate_code(f"{name}.py", f"{name}.pth"))
    found = write_model(Model(name, Inner().eval(), (torch.rand(2, 3),), {}), f"{name}.py")
    assert found.verified
    assert is_name(found.class_name)


def test_settings_and_keywords_of_any_name():
    class Scaled(nn.Module):
        def __init__(self, value):
            super().__init__()
            setattr(self, f"x = {CODE}", value)

        def forward(self, x):
            return x * getattr(self, f"x = {CODE}")

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Scaled(2.0), Scaled(3.0)

        def forward(self, x, **more):
            return self.second(self.first(x)) + sum(more.values())

    ast.parse(trace_graph(Both().eval(), (torch.rand(2),)).generate_code("out.py"))
    for name in (f"y=0); {CODE}#", "class"):
        with pytest.raises(CodegenError, match="is not a valid parameter name"):
            trace_graph(Both().eval(), (torch.rand(2),), {name: torch.rand(2)})


@pytest.mark.parametrize("name", [f"x = {CODE} #", f"x;{CODE}", f"x\n{CODE}", "x y", "class"])
@pytest.mark.parametrize("tied", [True, False])
def test_what_a_model_registers_on_a_module_of_torch_is_refused(name, tied):
    class Registers(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
            held = self.first.weight if tied else nn.Parameter(torch.ones(40, 3))
            self.second.register_parameter(name, held)

        def forward(self, x):
            x = self.second(self.first(x))
            return x if tied else x * getattr(self.second, name).sum()

    graph = trace_graph(Registers().eval(), (torch.rand(2, 3),))
    with pytest.raises(CodegenError, match="is registered on second, a module of torch's own"):
        graph.generate_code("out.py", "out.pth")


def test_str_subclasses_cannot_control_their_representation():
    class Loud(str):
        def __repr__(self):
            return CODE

    assert text(Loud("x")) == '"x"'
    for name in KEYS:
        assert ast.literal_eval(text(name)) == name
        assert ast.literal_eval(docstring(name)) == name
        assert is_name(identifier(name))
        tree = ast.parse(format_target("self", name or "x"), mode="eval")
        assert not [
            node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func.id != "getattr"
        ]


def test_a_function_from_a_file_that_is_not_an_importable_module_is_refused(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text("import torch\n@torch.fx.wrap\ndef halve(x):\n    return x / 2\n")
    for name in (f"odd\n{CODE}", "my-model", "class"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            with pytest.raises(CodegenError, match="cannot be imported"):
                Imports().name_of(module.halve)
        finally:
            del sys.modules[name]

"""torch's private names are confined to one folder, and this torch has all of them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import fx, nn

import torchport
from torchport import torch_private
from torchport.errors import TorchportError
from torchport.torch_private import attributes, names

SOURCE = Path(torchport.__file__).parent
# Not torch's, or so widely used that they are as good as public: the version that autograd checks, the dicts
# that a module consists of, the schema that every graph pass reads.
PUBLIC_ATTRIBUTES = {
    "_version", "_schema", "_parameters", "_buffers", "_modules",
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
    "_fields", "_asdict", "_replace",  # of named tuples
    "_getframe", "_exit", "_Hash", "_lru_cache_wrapper", "_slotnames",  # of Python's library
    "_from_config", "_is_user_defined", "_attn_implementation",  # of transformers
    "_has_ops",  # of torchvision
}  # fmt: skip
BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "get", "pop", "setdefault"}
MODULE_NAME = re.compile(r"torch(\.\w+)*\._\w+[\w.]*")


def is_private(name):
    return re.match(r"_[^\W_]", name) is not None


def own_names(tree):
    """Return the names that a file defines itself: functions, classes, variables, attributes."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            found.add(node.attr)
    return found


def chain(node):
    """Return the names in `a.b.c`; empty if it does not begin with a name."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [*reversed([*names, node.id])] if isinstance(node, ast.Name) else []


def keys(node):
    """Return the strings with which an expression looks up attributes or dict entries."""
    given = []
    if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in BY_NAME:
        given = node.args
    elif isinstance(node, ast.Subscript):
        given = [node.slice]
    elif isinstance(node, ast.Compare):
        given = [node.left, *node.comparators]
    return [item.value for item in given if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def private_uses(tree, own=frozenset()):
    """Return torch's private names that code uses."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and re.match(r"(torch|functorch)\b(?!port)", node.module or ""):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name.startswith("torch.")]
            found.update(name for name in names if any(map(is_private, name.split("."))))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            names = chain(node)
            is_op = names[:2] == ["torch", "ops"] or names[:1] in (["aten"], ["_aten"])
            is_own = names[:1] in (["self"], ["cls"]) and len(names) == 2
            if node.attr not in PUBLIC_ATTRIBUTES | own and not is_op and not is_own:
                found.add(".".join(names) or node.attr)
        elif isinstance(node, ast.Constant) and MODULE_NAME.fullmatch(str(node.value)):
            found.add(node.value)
        found.update(name for name in keys(node) if is_private(name) and name not in PUBLIC_ATTRIBUTES | own)
    return found


def test_only_one_folder_uses_private_names_of_torch():
    found = {}
    for path in SOURCE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        uses = private_uses(tree, own_names(tree))
        if uses and path.parent.name != "torch_private":
            found[path.relative_to(SOURCE).as_posix()] = uses
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "from torch._ops import OpOverload",
        "from torch.utils import _pytree",
        "from torch.export.exported_program import _decompose_exported_program",
        "import torch._dynamo",
        "torch._C._autograd()",
        "torch.compiler._is_compiling_flag",
        "tensor._use_count()",
        "tensor.untyped_storage()._cdata",
        'logging.getLogger("torch._export")',
        'getattr(op, "_qualified_op_name", None)',
        '"_dynamo_static_input_type" in node.meta',
        'node.meta["_dynamo_static_input_type"]',
        'vars(part).get("_actual_script_module", part)',
        "self.graph._root.prev",
    ],
)
def test_a_private_name_is_found(code):
    assert private_uses(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "from torch import nn",
        "from torchport._x import y",
        "tensor._version",
        "op._schema.name",
        "torch.ops.aten._to_copy.default",
        "self._anything",
        'name.endswith("_backward")',
        "torch.nn.Module.__init__",
    ],
)
def test_what_is_not_private_is_not_found(code):
    assert not private_uses(ast.parse(code))


def test_every_name_is_used():
    """Unused names must not be carried along from release to release."""
    here = ast.parse((SOURCE / "torch_private" / "attributes.py").read_text())
    offered = set(torch_private.NAMES) | {
        node.name
        for node in here.body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name[0] != "_"
    }
    used = {
        "is_compiling_flag",
        "StringType",
        "CachingAutotuner",
        "triton_cache_dir",
        "tensor_data_pointer",
    }  # by torch_private itself
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "torchport.torch_private":
                used.update(alias.name for alias in node.names)
    assert offered - used == set()


@pytest.mark.parametrize("name", torch_private.NAMES)
def test_this_torch_has_it(name):
    assert getattr(torch_private, name) is not None or name == "is_compiling_flag"
    assert torch_private.NAMES[name].needed_for


def test_types_are_declared_where_names_are_found():
    """The declarations for the type checker must match the table that is used at run time."""
    tree = ast.parse((SOURCE / "torch_private" / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            declared.update(
                {alias.asname: f"{node.module}.{alias.name}" for alias in node.names if alias.asname}
            )
        elif isinstance(node, ast.Assign):
            declared[node.targets[0].id] = ".".join(chain(node.value))
    assert declared == {
        name: private.places[0].replace(":", ".") for name, private in torch_private.NAMES.items()
    }


def test_a_name_that_is_gone_is_said_with_what_it_was_for(monkeypatch):
    gone = names.PrivateName(("torch._ops:Gone", "torch._gone:Gone"), "to fly")
    monkeypatch.setattr(torch_private, "NAMES", {"Gone": gone})
    monkeypatch.setattr(names, "NAMES", {"Gone": gone})
    with pytest.raises(TorchportError, match=r"torch\._ops:Gone or torch\._gone:Gone.*to fly"):
        torch_private.Gone  # noqa: B018
    with pytest.raises(AttributeError, match="Unknown"):
        torch_private.Unknown  # noqa: B018


def test_of_several_places_the_first_that_exists_is_taken(monkeypatch):
    moved = names.PrivateName(("torch._gone:Op", "torch._ops:Gone", "torch._ops:OpOverload"), "to fly")
    monkeypatch.setattr(torch_private, "NAMES", {"Moved": moved})
    monkeypatch.setattr(names, "NAMES", {"Moved": moved})
    assert torch_private.Moved is type(torch.ops.aten.add.Tensor)
    monkeypatch.delattr(torch_private, "Moved")


def test_importing_it_imports_no_torch():
    code = "import sys, torchport.torch_private; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_attributes_of_torchs_objects():
    tensor = torch.ones(2, requires_grad=True)
    add = torch.ops.aten.add.Tensor
    assert torch_private.storage_key(tensor.untyped_storage()) == torch_private.storage_key(
        tensor.detach().untyped_storage()
    )
    assert torch_private.storage_key(torch.ones(2).untyped_storage()) > 0
    assert torch_private.sequence_number((tensor * 2).grad_fn) < torch_private.sequence_number(
        (tensor * 2).grad_fn
    )
    assert torch_private.overload_name(add) == "Tensor"
    assert (
        torch_private.qualified_name(add) == torch_private.qualified_name(torch.ops.aten.add) == "aten::add"
    )
    key = torch_private.DispatchKey.CompositeImplicitAutograd
    assert torch.equal(
        torch_private.run_kernel(torch.ops.aten.reshape.default, key, (torch.ones(4), [2, 2]), {}),
        torch.ones(2, 2),
    )
    plain = torch.ones(2)
    torch_private.mark_as_parameter(plain)
    assert isinstance(plain, nn.Parameter)


def test_attributes_of_graphs_and_programs():
    graph = fx.Graph()
    graph.placeholder("x")
    last = graph.call_function(torch.relu, (next(iter(graph.nodes)),))
    assert torch_private.last_node(graph) is last
    assert not torch_private.is_static_input(last)
    torch_private.set_arguments(last, (1, 2))
    assert last.args == (1, 2)
    dim = torch.export.Dim("n", min=2, max=8)
    program = torch.export.export(nn.Linear(2, 2), (torch.ones(3, 2),), dynamic_shapes=({0: dim},))
    assert isinstance(torch_private.size_guards(program), list)


def test_variables_of_torchs_state(monkeypatch):
    found = torch_private.state_variables()
    assert (torch.fx.traceback, "current_meta") in found
    assert {module.__name__ for module, _ in found} == {name for name, _ in names.STATE_VARIABLES}
    monkeypatch.setattr(attributes, "STATE_VARIABLES", (("torch.compiler", ("_is_gone", "is_compiling")),))
    assert torch_private.state_variables() == [(torch.compiler, "is_compiling")]
    outside = torch_private.dual_level()
    with torch.autograd.forward_ad.dual_level():
        assert torch_private.dual_level() == outside + 1


def test_graphs_are_written_with_another_function(monkeypatch):
    monkeypatch.setattr(fx.graph, "_format_target", fx.graph._format_target)  # put back afterwards
    torch_private.replace_target_format(lambda base, target: f"{base}.changed_{target}")
    graph = fx.Graph()
    graph.output(graph.get_attr("weight"))
    assert "self.changed_weight" in graph.python_code("self").src
    monkeypatch.delattr(fx.graph, "_format_target")
    torch_private.replace_target_format(str)
    assert not hasattr(fx.graph, "_format_target")


def test_backends_stand_in_another_table(monkeypatch):
    from torch._dynamo.backends import registry

    monkeypatch.setattr(registry, "_COMPILER_FNS", {"mine": None})  # put back afterwards
    torch_private.replace_backends(lambda table: {**table, "another": None})
    assert registry._COMPILER_FNS == {"mine": None, "another": None}
    monkeypatch.delattr(registry, "_COMPILER_FNS")
    torch_private.replace_backends(dict)
    assert not hasattr(registry, "_COMPILER_FNS")


def test_a_string_is_saved_with_a_script():
    script = torch.jit.script(nn.ReLU())
    torch_private.add_script_attribute(script, "report", "text")
    assert script.report == "text"


def test_a_custom_op_has_a_module():
    @torch.library.custom_op("torchport_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert torch_private.custom_op_module(torch_private.OPDEFS["torchport_tests::twice"]) == __name__
    assert torch_private.custom_op_module(None) == ""


def test_compiling_is_said_and_taken_back():
    with torch_private.compiling():
        assert torch.compiler.is_compiling()
        with torch_private.compiling():
            pass
        assert torch.compiler.is_compiling()
    assert not torch.compiler.is_compiling()

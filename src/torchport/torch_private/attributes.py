"""Private attributes of torch's objects and modules, each wrapped in a function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchport.torch_private.names import STATE_VARIABLES, find

if TYPE_CHECKING:
    import torch
    from torch import fx

    from torchport.torch_private import DispatchKey, FakeTensorMode, OpOverload, OpOverloadPacket


def dynamo_lock() -> AbstractContextManager[object]:
    """Return Dynamo's lock, or a null context if Dynamo is not loaded; without it, captures may overlap."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return find("compile_lock") if module is not None else nullcontext()


def filter_annotations(may_annotate: Callable[[], bool]) -> None:
    """Let functions that Dynamo skips annotate the traced nodes only if `may_annotate()` returns True.

    During an export, such functions annotate the nodes being traced, whichever thread calls them; compiled
    training graphs and every op on a meta tensor do so. Without this filter, calls in the other threads, and
    the export itself, may raise `KeyError: 'custom'`.
    """
    functions = vars(sys.modules.get("torch._dynamo.eval_frame", sys))
    traceback = functions.get("fx_traceback")
    if traceback is not None and not isinstance(traceback, _FilteredTraceback):
        functions["fx_traceback"] = _FilteredTraceback(traceback, may_annotate)


class _FilteredTraceback:
    """Replaces `torch.fx.traceback` where Dynamo annotates the functions that it skips."""

    def __init__(self, traceback: ModuleType, may_annotate: Callable[[], bool]) -> None:
        self._traceback = traceback
        self._may_annotate = may_annotate

    def annotate(self, annotation_dict: dict[str, Any]) -> AbstractContextManager[object]:
        """Annotate the nodes, if this thread may."""
        return self._traceback.annotate(annotation_dict) if self._may_annotate() else nullcontext()

    def __getattr__(self, name: str) -> object:
        return getattr(self._traceback, name)


@contextmanager
def compiling() -> Iterator[None]:
    """Make `torch.compiler.is_compiling` return True, as in torch.compile (2.13 has a function for it)."""
    flags = vars(importlib.import_module("torch.compiler"))
    find("is_compiling_flag")  # raises if this torch does not have it
    before = flags["_is_compiling_flag"]
    flags["_is_compiling_flag"] = True
    try:
        yield
    finally:
        flags["_is_compiling_flag"] = before


def state_variables() -> list[tuple[ModuleType, str]]:
    """Return the module variables that hold torch's tracing state, as far as this torch has them."""
    modules = [(importlib.import_module(module), names) for module, names in STATE_VARIABLES]
    return [(module, name) for module, names in modules for name in names if name in vars(module)]


def forget_traced_nodes() -> None:
    """Clear torch's table of the last traced nodes, which keeps a graph and its weights alive.

    Without this, the model captured last is not freed until torch traces the next one and clears the table.
    """
    traced = sys.modules.get("torch.fx.experimental.proxy_tensor")
    vars(traced or sys).get("_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT", {}).clear()


def dual_level() -> int:
    """Return the nesting depth of forward-mode differentiation; without it, a level may stay open."""
    return int(vars(importlib.import_module("torch.autograd.forward_ad")).get("_current_level", -1))


def pop_functorch_levels(depth: int) -> None:
    """Pop functorch's levels down to a depth; without it, a failed transform may leave levels behind.

    Pops them one by one, each with the function for its kind: in 2.11, torch's function for popping all of
    them fails if the kinds are mixed.
    """
    levels = importlib.import_module("torch._C._functorch")
    kinds = levels.TransformType
    undo = {
        kinds.Vmap: levels._vmap_decrement_nesting,
        kinds.Grad: levels._grad_decrement_nesting,
        kinds.Jvp: levels._jvp_decrement_nesting,
        kinds.Functionalize: levels._func_decrement_nesting,
    }
    while levels.get_dynamic_layer_stack_depth() > depth:
        undo[levels.peek_interpreter_stack().key()]()


def functorch_transform() -> str:
    """Return the name of torch.func's innermost transform, such as `Vmap`; needed to refuse some of them."""
    innermost = importlib.import_module("torch._C._functorch").peek_interpreter_stack()
    return "" if innermost is None else str(innermost.key().name)


def replace_target_format(function: Callable[[str, str], str]) -> None:
    """Replace the function with which torch.fx prints attribute accesses, process-wide.

    Without this, graphs cannot contain modules and weights whose names are not identifiers.
    """
    written = vars(importlib.import_module("torch.fx.graph"))
    if "_format_target" in written:
        written["_format_target"] = function


def replace_backends(wrap: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Replace torch's table of torch.compile backends with another dict, process-wide.

    Without this, threads that look up a backend for the first time concurrently fail with "duplicate name".
    """
    registry = vars(importlib.import_module("torch._dynamo.backends.registry"))
    if "_COMPILER_FNS" in registry:
        registry["_COMPILER_FNS"] = wrap(registry["_COMPILER_FNS"])


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return an id shared by all Python objects of one storage; without it, aliasing cannot be detected."""
    return int(storage._cdata)


def run_kernel(
    op: OpOverload, key: DispatchKey, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Run an op's kernel for one dispatch key; without it, composite ops cannot be decomposed."""
    return op._op_dk(key, *args, **kwargs)


def sequence_number(node: object) -> int:
    """Return an autograd node's sequence number; without it, a backward op's forward op is unknown."""
    return int(node._sequence_nr())  # type: ignore[attr-defined]  # missing in the stubs


def script_type(value: torch.ScriptObject) -> str:
    """Return the name of a script object's class; without it, packed weights cannot be named."""
    return str(value._type())


def overload_name(op: OpOverload) -> str:
    """Return an op's overload name, such as `Tensor`; without it, code that calls ops cannot be generated."""
    return op._overloadname


def qualified_name(op: OpOverload | OpOverloadPacket) -> str:
    """Return an op's name, such as `aten::add`; without it, code that calls ops cannot be generated."""
    return str(getattr(op, "_qualified_op_name", None) or op._schema.name)


def custom_op_module(definition: object) -> str:
    """Return the module that defines a custom op; without it, code that calls one cannot be generated."""
    return getattr(getattr(definition, "_init_fn", None), "__module__", "")


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Mark a tensor of another class as a parameter; without it, substitutes for parameters are not ones."""
    tensor._is_param = True


def set_fake_tensor(mode: FakeTensorMode, tensor: torch.Tensor, fake: torch.Tensor) -> None:
    """Set a tensor's fake tensor; without it, models on `meta` are captured with `meta` as their device."""
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)  # type: ignore[arg-type]  # a FakeTensor


def last_node(graph: fx.Graph) -> fx.Node:
    """Return the graph's last node; without it, a model's calls cannot be recorded in order."""
    return graph._root.prev


def set_arguments(node: fx.Node, args: tuple[fx.node.Argument, ...]) -> None:
    """Set a node's arguments without adding it to their users; needed to write some calls as code."""
    node._args = args


def is_dynamo_loaded() -> bool:
    """Whether Dynamo is loaded; without this check, it would compile kernels written in Python, slowly."""
    return "torch._dynamo" in sys.modules


def before_compiling(function: object) -> object:
    """Return the function that `torch.compile` wrapped, or the function itself if it is not compiled."""
    return getattr(function, "_torchdynamo_orig_callable", function)


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of another one; without it, some models cannot be called with views."""
    return tensor._is_view()


def size_guards(program: torch.export.ExportedProgram) -> list[str] | None:
    """Return torch's guards on sizes as Python code; None, and no packages for other shapes, without it."""
    return getattr(program, "_guards_code", None)


def add_script_attribute(script: torch.jit.ScriptModule, name: str, text: str) -> None:
    """Add a string that is saved with a TorchScript module; without it, a traced model has no report."""
    script._c._register_attribute(name, find("StringType").get(), text)


def is_static_input(node: fx.Node) -> bool:
    """Whether Dynamo marked an input as a weight; without it, no weights are frozen."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def count_size_guards(size: torch.SymInt) -> int:
    """Return the number of guards on a graph's sizes; without it, no program has dynamic sizes."""
    env = size.node.shape_env
    return len(env.guards) + len(env.replacements)

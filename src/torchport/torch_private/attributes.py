"""Private attributes of torch's objects and modules, each behind a function."""

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


def lock_of_compilations() -> AbstractContextManager[object]:
    """Return Dynamo's lock; without it two threads capture at once. Nothing if Dynamo was never imported."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return find("compile_lock") if module is not None else nullcontext()


def keep_notes_of_threads_apart(may_note: Callable[[], bool]) -> None:
    """Have functions that Dynamo leaves alone note that they ran only if `may_note` says so.

    While anything is exported, such functions note it in what is being traced, whichever thread calls them:
    compiled training graphs do, and every op on a meta tensor. Without this, calls of the other threads, and
    the export, may raise `KeyError: 'custom'`.
    """
    functions = vars(sys.modules.get("torch._dynamo.eval_frame", sys))
    notes = functions.get("fx_traceback")
    if notes is not None and not isinstance(notes, _ThreadsNotes):
        functions["fx_traceback"] = _ThreadsNotes(notes, may_note)


class _ThreadsNotes:
    """Stands for `torch.fx.traceback` where Dynamo notes what it leaves alone."""

    def __init__(self, notes: ModuleType, may_note: Callable[[], bool]) -> None:
        self._notes = notes
        self._may_note = may_note

    def annotate(self, annotation_dict: dict[str, Any]) -> AbstractContextManager[object]:
        """Note it, if this thread may."""
        return self._notes.annotate(annotation_dict) if self._may_note() else nullcontext()

    def __getattr__(self, name: str) -> object:
        return getattr(self._notes, name)


@contextmanager
def compiling() -> Iterator[None]:
    """Have `torch.compiler.is_compiling` say yes, as under torch.compile (2.13 has a function for it)."""
    flags = vars(importlib.import_module("torch.compiler"))
    find("is_compiling_flag")  # refuses where it is gone
    before = flags["_is_compiling_flag"]
    flags["_is_compiling_flag"] = True
    try:
        yield
    finally:
        flags["_is_compiling_flag"] = before


def state_variables() -> list[tuple[ModuleType, str]]:
    """Return the modules and names in which torch keeps what it is doing; one that is gone is left out."""
    modules = [(importlib.import_module(module), names) for module, names in STATE_VARIABLES]
    return [(module, name) for module, names in modules for name in names if name in vars(module)]


def forget_traced_nodes() -> None:
    """Empty torch's table of the nodes that it traced last, and with them a graph and its weights.

    Without it the model that was captured last is not freed; torch empties it when it traces the next one.
    """
    traced = sys.modules.get("torch.fx.experimental.proxy_tensor")
    vars(traced or sys).get("_FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT", {}).clear()


def dual_level() -> int:
    """Return how deep forward-mode differentiation is nested; without it a level may be left open."""
    return int(vars(importlib.import_module("torch.autograd.forward_ad")).get("_current_level", -1))


def pop_functorch_levels(depth: int) -> None:
    """Pop functorch's levels down to a depth; without it a transform that fails may leave some behind.

    One by one, each as its kind is popped: what torch has for all at once fails in 2.11 if kinds are mixed.
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
    """Return the name of torch.func's innermost transform, such as `Vmap`; without it none is refused."""
    innermost = importlib.import_module("torch._C._functorch").peek_interpreter_stack()
    return "" if innermost is None else str(innermost.key().name)


def replace_target_format(function: Callable[[str, str], str]) -> None:
    """Have torch.fx write attributes with another function, in the whole process.

    Without it graphs cannot hold modules and weights whose names are not identifiers.
    """
    written = vars(importlib.import_module("torch.fx.graph"))
    if "_format_target" in written:
        written["_format_target"] = function


def replace_backends(wrap: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Have another dict be torch's table of backends, in the whole process.

    Without it threads that are the first to name a backend at the same time end in "duplicate name".
    """
    registry = vars(importlib.import_module("torch._dynamo.backends.registry"))
    if "_COMPILER_FNS" in registry:
        registry["_COMPILER_FNS"] = wrap(registry["_COMPILER_FNS"])


def storage_key(storage: torch.UntypedStorage) -> int:
    """Return a number that all Python objects of one storage share; without it memory cannot be told."""
    return int(storage._cdata)


def run_kernel(
    op: OpOverload, key: DispatchKey, args: tuple[object, ...], kwargs: Mapping[str, object]
) -> object:
    """Run an op's kernel of one dispatch key; without it composite ops cannot be taken apart."""
    return op._op_dk(key, *args, **kwargs)


def sequence_number(node: object) -> int:
    """Return an autograd node's number; without it a backward op's forward op is not known."""
    return int(node._sequence_nr())  # type: ignore[attr-defined]  # the stubs lack it


def script_type(value: torch.ScriptObject) -> str:
    """Return the name of a script object's class; without it packed weights cannot be named."""
    return str(value._type())


def overload_name(op: OpOverload) -> str:
    """Return an op's overload, such as `Tensor`; without it code that calls ops cannot be written."""
    return op._overloadname


def qualified_name(op: OpOverload | OpOverloadPacket) -> str:
    """Return an op's name, such as `aten::add`; without it code that calls ops cannot be written."""
    return str(getattr(op, "_qualified_op_name", None) or op._schema.name)


def custom_op_module(definition: object) -> str:
    """Return the module that defines a custom op; without it code that calls one cannot be written."""
    return getattr(getattr(definition, "_init_fn", None), "__module__", "")


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Mark a tensor of another class as a parameter; without it stand-ins are not parameters."""
    tensor._is_param = True


def set_fake_tensor(mode: FakeTensorMode, tensor: torch.Tensor, fake: torch.Tensor) -> None:
    """Say which fake tensor stands for a tensor; without it models on `meta` are captured as such."""
    mode.fake_tensor_converter.set_tensor_memo(tensor, fake)  # type: ignore[arg-type]  # a FakeTensor


def last_node(graph: fx.Graph) -> fx.Node:
    """Return the node that was added last; without it the calls of a model cannot be put in order."""
    return graph._root.prev


def set_arguments(node: fx.Node, args: tuple[fx.node.Argument, ...]) -> None:
    """Give a node arguments without making it their user; without it some calls cannot be written as code."""
    node._args = args


def is_dynamo_loaded() -> bool:
    """Whether torch.compile could be at work; without it kernels in Python are compiled, and slow."""
    return "torch._dynamo" in sys.modules


def before_compiling(function: object) -> object:
    """Return what `torch.compile` was given for a function; the function itself if it is none of its own."""
    return getattr(function, "_torchdynamo_orig_callable", function)


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of another one; without it some models cannot be called with views."""
    return tensor._is_view()


def size_guards(program: torch.export.ExportedProgram) -> list[str] | None:
    """Return what torch assumed of sizes, as Python; None, and no package for other shapes, without it."""
    return getattr(program, "_guards_code", None)


def add_script_attribute(script: torch.jit.ScriptModule, name: str, text: str) -> None:
    """Add a string that is saved with a TorchScript module; without it a traced model has no report."""
    script._c._register_attribute(name, find("StringType").get(), text)


def is_static_input(node: fx.Node) -> bool:
    """Whether Dynamo says that an input is a weight; without it no weights are frozen."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def count_size_guards(size: torch.SymInt) -> int:
    """Return how often torch assumed something of a graph's sizes; without it no program has open sizes."""
    env = size.node.shape_env
    return len(env.guards) + len(env.replacements)

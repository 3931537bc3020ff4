"""Every private name of torch's that torchport uses: another release of torch changes this file alone.

Each stands in `NAMES` with what no longer works without it, and with where each supported release has it:
2.11, 2.12 and 2.13 agree where one place is given. The tests run with 2.13; of the others the sources were
read. Names are looked up when they are first used, so that importing this file imports nothing of torch: some
of them take seconds.

    from torchport.torch_private import FakeTensor

Private attributes of torch's objects are behind the functions at the end. Not private here, since torch's
documents or all of its users rely on them: `Tensor._version`; `_parameters`, `_buffers`, `_modules` and the
hooks of `nn.Module`; `OpOverload._schema`; ops whose names begin with an underscore, such as
`torch.ops.aten._to_copy`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torchport.errors import TorchportError

if TYPE_CHECKING:
    import torch
    import torch._C
    import torch._C._autograd
    import torch._C._functorch
    import torch._decomp
    import torch._export.utils
    import torch._functorch.partitioners
    import torch._guards
    import torch.export._remove_effect_tokens_pass
    import torch.export._trace
    import torch.export.exported_program
    import torch.fx._lazy_graph_module
    import torch.fx.passes.shape_prop
    import torch.onnx._internal.exporter._core
    import torch.overrides
    import torch.utils._python_dispatch
    from torch import fx
    from torch._C import Argument as Argument
    from torch._C import BufferDict as BufferDict
    from torch._C import DispatchKey as DispatchKey
    from torch._C import ParameterDict as ParameterDict
    from torch._C import ScriptMethod as ScriptMethod
    from torch._C import StringType as StringType
    from torch._C._functorch import is_functorch_wrapped_tensor as is_functorch_wrapped_tensor
    from torch._C._functorch import peek_interpreter_stack as peek_interpreter_stack
    from torch._dynamo.backends.common import aot_autograd as aot_autograd
    from torch._dynamo.backends.debugging import aot_eager as aot_eager
    from torch._dynamo.convert_frame import compile_lock as compile_lock
    from torch._dynamo.exc import RestartAnalysis as RestartAnalysis
    from torch._functorch.aot_autograd import make_boxed_func as make_boxed_func  # type: ignore[attr-defined]  # imported there, not exported
    from torch._guards import TracingContext as TracingContext
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._guards import tracing as tracing
    from torch._inductor.standalone_compile import CompiledArtifact as CompiledArtifact
    from torch._library.custom_ops import OPDEFS as OPDEFS
    from torch._ops import HigherOrderOperator as HigherOrderOperator
    from torch._ops import OperatorBase as OperatorBase
    from torch._ops import OpOverload as OpOverload
    from torch._ops import OpOverloadPacket as OpOverloadPacket
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
    from torch._subclasses.fake_tensor import is_fake as is_fake
    from torch._subclasses.functional_tensor import FunctionalTensor as FunctionalTensor
    from torch.export.pt2_archive._package import package_pt2 as package_pt2
    from torch.fx.experimental.symbolic_shapes import ShapeEnv as ShapeEnv
    from torch.jit._script import OrderedDictWrapper as OrderedDictWrapper
    from torch.jit._script import OrderedModuleDict as OrderedModuleDict
    from torch.onnx._internal.exporter._registration import ONNXRegistry as ONNXRegistry
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from torch.utils._pytree import tree_leaves as tree_leaves
    from torch.utils._pytree import tree_map as tree_map
    from torch.utils._pytree import tree_map_only as tree_map_only
    from torch.utils._sympy.value_ranges import ValueRanges as ValueRanges

    current_autograd_node = torch._C._current_autograd_node
    all_op_names = torch._C._dispatch_get_all_op_names
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    select_conv_backend = torch._C._select_conv_backend
    set_grad_enabled = torch._C._set_grad_enabled
    next_sequence_number = torch._C._autograd._get_sequence_nr
    is_compiling_flag = torch.compiler._is_compiling_flag
    core_aten_decompositions = torch._decomp._core_aten_decompositions_post_autograd
    decomposition_table = torch._decomp.decomposition_table
    is_preservable_composite = torch._export.utils._is_preservable_cia_op
    min_cut_partition = torch._functorch.partitioners.min_cut_rematerialization_partition
    remove_effect_tokens = torch.export._remove_effect_tokens_pass._remove_effect_tokens
    without_fake_mode = torch.export.exported_program._disable_prexisiting_fake_mode
    decompose_exported_program = torch.export.exported_program._decompose_exported_program
    standalone_compile = torch._inductor.standalone_compile
    preserve_composite = torch._export.utils._special_op_to_preserve_cia
    use_lazy_graph_module = torch.fx._lazy_graph_module._use_lazy_graph_module
    extract_tensor_metadata = torch.fx.passes.shape_prop._extract_tensor_metadata
    disable_current_modes = torch.utils._python_dispatch._disable_current_modes
    has_any_kernel = torch._C._dispatch_has_kernel
    InferenceMode = torch._C._InferenceMode
    exit_dual_level = torch._C._exit_dual_level
    functorch_depth = torch._C._functorch.get_dynamic_layer_stack_depth
    dispatch_modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack
    pop_dispatch_mode = torch.utils._python_dispatch._pop_mode
    push_dispatch_mode = torch.utils._python_dispatch._push_mode
    function_modes = torch.overrides._get_current_function_mode_stack
    pop_function_mode = torch.overrides._pop_mode
    push_function_mode = torch.overrides._push_mode
    tracing_state = torch._guards._TLS
    default_device_state = torch._GLOBAL_DEVICE_CONTEXT
    export_program = torch.export._trace._export
    export_onnx = torch.onnx._internal.exporter._core.export


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private name of torch's.

    Args:
        places: where it is, as `module:name`, or a module; the first that this torch has is taken.
        needed_for: what does not work without it.
    """

    places: tuple[str, ...]
    needed_for: str


def _at(place: str, needed_for: str) -> PrivateName:
    return PrivateName((place,), needed_for)


_OPS = "to tell ops from other callables: nothing works without it"
_FAKE = "to run models without values: captures, analyses and random weights"
_TRACED = "to capture the forward and backward graphs of a model (torchport.capture.aot)"
_STREAMED = "to note every op as a model calls it (torchport.analyze)"
_RESTORED = "to leave torch as it was, whatever a capture does"
_SCRIPTED = "to capture TorchScript's modules without touching them"
_INDUCTOR = "to compile islands with torch's own compiler (the target inductor)"
_ONNX = "to write islands as ONNX (the target onnxruntime)"
_DECOMPOSED = "to apply a target's decompositions (torchport.compile, torchport.explain)"

NAMES: Mapping[str, PrivateName] = {
    "standalone_compile": _at("torch._inductor:standalone_compile", _INDUCTOR),
    "CompiledArtifact": _at("torch._inductor.standalone_compile:CompiledArtifact", _INDUCTOR),
    "export_onnx": _at("torch.onnx._internal.exporter._core:export", _ONNX),
    "ONNXRegistry": _at("torch.onnx._internal.exporter._registration:ONNXRegistry", _ONNX),
    "OpOverload": _at("torch._ops:OpOverload", _OPS),
    "OpOverloadPacket": _at("torch._ops:OpOverloadPacket", _OPS),
    "HigherOrderOperator": _at("torch._ops:HigherOrderOperator", _OPS),
    "OperatorBase": _at("torch._ops:OperatorBase", _OPS),
    "FakeTensor": _at("torch._subclasses.fake_tensor:FakeTensor", _FAKE),
    "FakeTensorMode": _at("torch._subclasses.fake_tensor:FakeTensorMode", _FAKE),
    "is_fake": _at(
        "torch._subclasses.fake_tensor:is_fake", "to check a file's ops on their values, where they have some"
    ),
    "DataDependentOutputException": _at(
        "torch._subclasses.fake_tensor:DataDependentOutputException",
        "to explain that a model's path depends on values",
    ),
    "DynamicOutputShapeException": _at(
        "torch._subclasses.fake_tensor:DynamicOutputShapeException",
        "to explain that a shape depends on values",
    ),
    "FunctionalTensor": _at(
        "torch._subclasses.functional_tensor:FunctionalTensor",
        "to find tensors of a trace in what functions remember",
    ),
    "TorchDispatchMode": _at("torch.utils._python_dispatch:TorchDispatchMode", _STREAMED),
    "disable_current_modes": _at("torch.utils._python_dispatch:_disable_current_modes", _STREAMED),
    "tree_leaves": _at("torch.utils._pytree:tree_leaves", "to flatten what torch's pytrees know"),
    "tree_map": _at("torch.utils._pytree:tree_map", "to flatten what torch's pytrees know"),
    "tree_map_only": _at("torch.utils._pytree:tree_map_only", "to flatten what torch's pytrees know"),
    "DispatchKey": _at("torch._C:DispatchKey", _STREAMED),
    "has_kernel": _at("torch._C:_dispatch_has_kernel_for_dispatch_key", _STREAMED),
    "current_autograd_node": _at("torch._C:_current_autograd_node", _STREAMED),
    "next_sequence_number": _at("torch._C._autograd:_get_sequence_nr", _STREAMED),
    "select_conv_backend": _at(
        "torch._C:_select_conv_backend", "to model the memory that a convolution takes for itself"
    ),
    "all_op_names": _at(
        "torch._C:_dispatch_get_all_op_names", "to refuse an option that names an op which does not exist"
    ),
    "has_any_kernel": _at(
        "torch._C:_dispatch_has_kernel", "to refuse a file whose ops this torch cannot run"
    ),
    "Argument": _at("torch._C:Argument", "to check the calls in a file against the schemas of ops"),
    "set_grad_enabled": _at(
        "torch._C:_set_grad_enabled", "to record that a model's code switches gradients on or off"
    ),
    "StringType": _at("torch._C:StringType", "to store the report in a TorchScript module"),
    "is_functorch_wrapped_tensor": _at(
        "torch._C._functorch:is_functorch_wrapped_tensor", "to capture calls under torch.func"
    ),
    "peek_interpreter_stack": _at(
        "torch._C._functorch:peek_interpreter_stack", "to capture calls under torch.func"
    ),
    "functorch_depth": _at("torch._C._functorch:get_dynamic_layer_stack_depth", _RESTORED),
    "exit_dual_level": _at("torch._C:_exit_dual_level", _RESTORED),
    "InferenceMode": _at("torch._C:_InferenceMode", _RESTORED),
    "dispatch_modes": _at("torch.utils._python_dispatch:_get_current_dispatch_mode_stack", _RESTORED),
    "pop_dispatch_mode": _at("torch.utils._python_dispatch:_pop_mode", _RESTORED),
    "push_dispatch_mode": _at("torch.utils._python_dispatch:_push_mode", _RESTORED),
    "function_modes": _at("torch.overrides:_get_current_function_mode_stack", _RESTORED),
    "pop_function_mode": _at("torch.overrides:_pop_mode", _RESTORED),
    "push_function_mode": _at("torch.overrides:_push_mode", _RESTORED),
    "tracing_state": _at("torch._guards:_TLS", _RESTORED),
    "default_device_state": _at("torch:_GLOBAL_DEVICE_CONTEXT", _RESTORED),
    "OrderedDictWrapper": _at("torch.jit._script:OrderedDictWrapper", _SCRIPTED),
    "OrderedModuleDict": _at("torch.jit._script:OrderedModuleDict", _SCRIPTED),
    "ParameterDict": _at("torch._C:ParameterDict", _SCRIPTED),
    "BufferDict": _at("torch._C:BufferDict", _SCRIPTED),
    "ScriptMethod": _at("torch._C:ScriptMethod", _SCRIPTED),
    "export_program": _at("torch.export._trace:_export", "to capture models that use torch.func"),
    "decomposition_table": _at("torch._decomp:decomposition_table", _DECOMPOSED),
    "core_aten_decompositions": _at("torch._decomp:_core_aten_decompositions_post_autograd", _DECOMPOSED),
    "is_preservable_composite": _at("torch._export.utils:_is_preservable_cia_op", _DECOMPOSED),
    "decompose_exported_program": _at(
        "torch.export.exported_program:_decompose_exported_program", _DECOMPOSED
    ),
    "preserve_composite": _at("torch._export.utils:_special_op_to_preserve_cia", _DECOMPOSED),
    "without_fake_mode": _at("torch.export.exported_program:_disable_prexisiting_fake_mode", _DECOMPOSED),
    "remove_effect_tokens": _at(
        "torch.export._remove_effect_tokens_pass:_remove_effect_tokens",
        "to compile models whose ops have effects, such as printing",
    ),
    "compile_lock": _at("torch._dynamo.convert_frame:compile_lock", "to capture in several threads"),
    "aot_autograd": _at("torch._dynamo.backends.common:aot_autograd", "to train through torch.compile"),
    "make_boxed_func": _at("torch._functorch.aot_autograd:make_boxed_func", "to train through torch.compile"),
    "aot_eager": _at(
        "torch._dynamo.backends.debugging:aot_eager",
        "to train through torch.compile what no target can take apart",
    ),
    "RestartAnalysis": _at(
        "torch._dynamo.exc:RestartAnalysis", "to train through torch.compile with sizes that vary"
    ),
    "min_cut_partition": _at(
        "torch._functorch.partitioners:min_cut_rematerialization_partition",
        "to train through torch.compile with as little memory as torch's own backend",
    ),
    "TracingContext": _at("torch._guards:TracingContext", _TRACED),
    "tracing": _at("torch._guards:tracing", _TRACED),
    "ShapeEnv": _at(
        "torch.fx.experimental.symbolic_shapes:ShapeEnv", "to capture models on `meta` as if on the CPU"
    ),
    "is_compiling_flag": _at("torch.compiler:_is_compiling_flag", _TRACED),
    "use_lazy_graph_module": _at("torch.fx._lazy_graph_module:_use_lazy_graph_module", _TRACED),
    "detect_fake_mode": _at("torch._guards:detect_fake_mode", "to load Hugging Face models without values"),
    "OPDEFS": _at("torch._library.custom_ops:OPDEFS", "to write code that calls custom ops"),
    "extract_tensor_metadata": _at(
        "torch.fx.passes.shape_prop:_extract_tensor_metadata", "to write an island's files"
    ),
    "package_pt2": _at("torch.export.pt2_archive._package:package_pt2", "to write packages"),
    "ValueRanges": _at("torch.utils._sympy.value_ranges:ValueRanges", "to write a package's size guards"),
}


# Names of loggers, whose records repeat what is raised, and of a module that shows that Dynamo is in use.
FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"
EXPORT_LOGGER = "torch._export"
PYTREE_LOGGER = "torch.utils._pytree"
DYNAMO = "torch._dynamo"
# Where the functions are defined to which Dynamo takes the transforms of torch.func apart.
FUNCTORCH_MODULES = ("torch._functorch.", "torch._C._functorch")
# Attributes of scripted modules: the C++ object, and what a traced module stands before.
SCRIPT_OBJECT = "_c"
TRACED_SCRIPT = "_actual_script_module"
# Variables of modules in which torch keeps what it is doing; those that this torch has are put back.
STATE_VARIABLES = (
    ("torch.fx.traceback", ("current_meta", "current_replay_node", "should_preserve_node_meta")),
    ("torch._functorch.eager_transforms", ("JVP_NESTING",)),
    ("torch.autograd.forward_ad", ("_current_level",)),
    ("torch.compiler", ("_is_compiling_flag", "_is_exporting_flag", "_is_non_strict_tracing_flag")),
    ("torch.utils._device", ("CURRENT_DEVICE",)),
)


def __getattr__(name: str) -> Any:
    private = NAMES.get(name)
    if private is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for place in private.places:
        module, _, attribute = place.partition(":")
        try:
            found = importlib.import_module(module)
            found = getattr(found, attribute) if attribute else found
        except (ImportError, AttributeError):
            continue
        globals()[name] = found  # the next time it is found at once
        return found
    raise TorchportError(
        f"this torch has no {' or '.join(private.places)}, which is needed {private.needed_for}",
        where="torchport.torch_private",
        remedy="use a release of torch that torchport supports: 2.11 to 2.13",
    )


# ---- private attributes of torch's objects


def lock_of_compilations() -> AbstractContextManager[object]:
    """Return Dynamo's lock; without it two threads capture at once. Nothing if Dynamo was never imported."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return __getattr__("compile_lock") if module is not None else nullcontext()


@contextmanager
def compiling() -> Iterator[None]:
    """Have `torch.compiler.is_compiling` say yes, as under torch.compile (2.13 has a function for it)."""
    flags = vars(importlib.import_module("torch.compiler"))
    __getattr__("is_compiling_flag")  # refuses where it is gone
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


def is_view(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a view of another one; without it some models cannot be called with views."""
    return tensor._is_view()


def size_guards(program: torch.export.ExportedProgram) -> list[str] | None:
    """Return what torch assumed of sizes, as Python; None, and no package for other shapes, without it."""
    return getattr(program, "_guards_code", None)


def add_script_attribute(script: torch.jit.ScriptModule, name: str, text: str) -> None:
    """Add a string that is saved with a TorchScript module; without it a traced model has no report."""
    script._c._register_attribute(name, __getattr__("StringType").get(), text)


def is_static_input(node: fx.Node) -> bool:
    """Whether Dynamo says that an input is a weight; without it no weights are frozen."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def count_size_guards(size: torch.SymInt) -> int:
    """Return how often torch assumed something of a graph's sizes; without it no program has open sizes."""
    env = size.node.shape_env
    return len(env.guards) + len(env.replacements)

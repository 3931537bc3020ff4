"""The table of torch's private names, and its lookup."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchport.errors import TorchportError


@dataclass(frozen=True, slots=True)
class PrivateName:
    """A private torch name.

    Args:
        places: its possible locations, as `module:name` or a module; the first that exists is used.
        needed_for: what it is needed for, as in `to capture models that use torch.func`.
    """

    places: tuple[str, ...]
    needed_for: str


def _at(place: str, needed_for: str) -> PrivateName:
    return PrivateName((place,), needed_for)


_OPS = "to distinguish ops from other callables: nothing works without it"
_FAKE = "to run models on fake tensors: captures, analyses and random weights"
_TRACED = "to capture the forward and backward graphs of a model (torchport.capture.aot)"
_STREAMED = "to record every op that a model calls (torchport.analyze)"
_RESTORED = "to restore torch's state after every capture"
_SCRIPTED = "to capture TorchScript modules without modifying them"
_INDUCTOR = "to compile islands with torch's own compiler (the target inductor)"
_DIRECT = "to load packages of the target inductor without its compiler"
_ONNX = "to export islands to ONNX (the target onnxruntime)"
_DECOMPOSED = "to apply a target's decompositions (torchport.compile, torchport.explain)"

NAMES: Mapping[str, PrivateName] = {
    "standalone_compile": _at("torch._inductor:standalone_compile", _INDUCTOR),
    "CompiledArtifact": _at("torch._inductor.standalone_compile:CompiledArtifact", _INDUCTOR),
    "CachingAutotuner": _at("torch._inductor.runtime.triton_heuristics:CachingAutotuner", _DIRECT),
    "triton_cache_dir": _at("torch._inductor.runtime.cache_dir_utils:triton_cache_dir", _DIRECT),
    "tensor_data_pointer": _at("torch._C._dynamo.guards:_torchinductor_pyobject_tensor_data_ptr", _DIRECT),
    "TensorGuards": _at(
        "torch._C._dynamo.guards:TensorGuards", "to check on each call that the weights have not changed"
    ),
    "export_onnx": _at("torch.onnx._internal.exporter._core:export", _ONNX),
    "ONNXRegistry": _at("torch.onnx._internal.exporter._registration:ONNXRegistry", _ONNX),
    "has_global_hooks": _at(
        "torch.nn.modules.module:_has_any_global_hook",
        "to know that no user code runs during a generate call, so that the weights are checked only once",
    ),
    "OpOverload": _at("torch._ops:OpOverload", _OPS),
    "OpOverloadPacket": _at("torch._ops:OpOverloadPacket", _OPS),
    "HigherOrderOperator": _at("torch._ops:HigherOrderOperator", _OPS),
    "OperatorBase": _at("torch._ops:OperatorBase", _OPS),
    "FakeTensor": _at("torch._subclasses.fake_tensor:FakeTensor", _FAKE),
    "FakeTensorMode": _at("torch._subclasses.fake_tensor:FakeTensorMode", _FAKE),
    "is_fake": _at(
        "torch._subclasses.fake_tensor:is_fake", "to check the arguments of a file's ops, if they have values"
    ),
    "DataDependentOutputException": _at(
        "torch._subclasses.fake_tensor:DataDependentOutputException",
        "to explain that a model's control flow depends on values",
    ),
    "DynamicOutputShapeException": _at(
        "torch._subclasses.fake_tensor:DynamicOutputShapeException",
        "to explain that a shape depends on values",
    ),
    "FunctionalTensor": _at(
        "torch._subclasses.functional_tensor:FunctionalTensor",
        "to find tensors of a trace in function caches",
    ),
    "FunctionalTensorMode": _at("torch._subclasses.functional_tensor:FunctionalTensorMode", _DECOMPOSED),
    "dispatch_functionalize": _at("torch._subclasses.functional_tensor:dispatch_functionalize", _DECOMPOSED),
    "TorchDispatchMode": _at("torch.utils._python_dispatch:TorchDispatchMode", _STREAMED),
    "disable_current_modes": _at("torch.utils._python_dispatch:_disable_current_modes", _STREAMED),
    "tree_leaves": _at("torch.utils._pytree:tree_leaves", "to flatten torch's pytrees"),
    "tree_map": _at("torch.utils._pytree:tree_map", "to flatten torch's pytrees"),
    "tree_map_only": _at("torch.utils._pytree:tree_map_only", "to flatten torch's pytrees"),
    "DispatchKey": _at("torch._C:DispatchKey", _STREAMED),
    "has_kernel": _at("torch._C:_dispatch_has_kernel_for_dispatch_key", _STREAMED),
    "current_autograd_node": _at("torch._C:_current_autograd_node", _STREAMED),
    "next_sequence_number": _at("torch._C._autograd:_get_sequence_nr", _STREAMED),
    "select_conv_backend": _at(
        "torch._C:_select_conv_backend", "to model the workspace memory of a convolution"
    ),
    "all_op_names": _at(
        "torch._C:_dispatch_get_all_op_names", "to refuse an option that names a nonexistent op"
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
    "keeping_composites": _at(
        "torch.export.exported_program:_override_composite_implicit_decomp", _DECOMPOSED
    ),
    "without_backend_decompositions": _at("torch.export._trace:_ignore_backend_decomps", _DECOMPOSED),
    "enable_python_dispatcher": _at("torch._dispatch.python:enable_python_dispatcher", _DECOMPOSED),
    "has_data_mutation": _at("torch:_functionalize_has_data_mutation", _DECOMPOSED),
    "has_effects": _at("torch._higher_order_ops.effects:has_effects", _DECOMPOSED),
    "without_fake_mode": _at("torch.export.exported_program:_disable_prexisiting_fake_mode", _DECOMPOSED),
    "remove_effect_tokens": _at(
        "torch.export._remove_effect_tokens_pass:_remove_effect_tokens",
        "to compile models whose ops have side effects, such as printing",
    ),
    "compile_lock": _at("torch._dynamo.convert_frame:compile_lock", "to capture in several threads"),
    "aot_autograd": _at("torch._dynamo.backends.common:aot_autograd", "to train through torch.compile"),
    "make_boxed_func": _at("torch._functorch.aot_autograd:make_boxed_func", "to train through torch.compile"),
    "aot_eager": _at(
        "torch._dynamo.backends.debugging:aot_eager",
        "to train through torch.compile with graphs that no target can decompose",
    ),
    "RestartAnalysis": _at(
        "torch._dynamo.exc:RestartAnalysis", "to train through torch.compile with dynamic sizes"
    ),
    "min_cut_partition": _at(
        "torch._functorch.partitioners:min_cut_rematerialization_partition",
        "to train through torch.compile with as little memory as torch's own backend",
    ),
    "partition_config": _at(
        "torch._functorch.config", "to train through torch.compile on ttnn with minimal memory"
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


# Loggers whose records duplicate raised exceptions, and the module that shows that Dynamo is in use.
FAKE_TENSOR_LOGGER = "torch._subclasses.fake_tensor"
EXPORT_LOGGER = "torch._export"
PYTREE_LOGGER = "torch.utils._pytree"
DYNAMO = "torch._dynamo"
# Modules that inductor's generated code imports, and can run without.
COMPILER_MODULES = ("torch._inductor", "torch._dynamo", "triton")
# Where the functions are defined into which Dynamo decomposes the transforms of torch.func.
FUNCTORCH_MODULES = ("torch._functorch.", "torch._C._functorch")
# Attributes of scripted modules: the C++ object, and the scripted module that a traced module wraps.
SCRIPT_OBJECT = "_c"
TRACED_SCRIPT = "_actual_script_module"
# Module variables that hold torch's tracing state; those that this torch has are restored.
STATE_VARIABLES = (
    ("torch.fx.traceback", ("current_meta", "current_replay_node", "should_preserve_node_meta")),
    ("torch._functorch.eager_transforms", ("JVP_NESTING",)),
    ("torch.autograd.forward_ad", ("_current_level",)),
    ("torch.compiler", ("_is_compiling_flag", "_is_exporting_flag", "_is_non_strict_tracing_flag")),
    ("torch.utils._device", ("CURRENT_DEVICE",)),
)


def find(name: str) -> Any:
    """Return the object that a name in the table refers to in this torch.

    Raises:
        KeyError: the name is not in the table.
        TorchportError: this torch does not have the object.
    """
    private = NAMES[name]
    for place in private.places:
        module, _, attribute = place.partition(":")
        try:
            found = importlib.import_module(module)
            return getattr(found, attribute) if attribute else found
        except (ImportError, AttributeError):
            continue
    raise TorchportError(
        f"this torch has no {' or '.join(private.places)}, which is needed {private.needed_for}",
        where="torchport.torch_private",
        remedy="use a release of torch that torchport supports: 2.11 to 2.13",
    )

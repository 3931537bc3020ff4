"""Every private torch name that torchport uses: a new torch release requires changes in this folder only.

Each is listed in `names.py` with what it is needed for and its location in each supported release; a single
location holds for 2.11, 2.12 and 2.13. The tests run with 2.13; the other releases were checked by reading
their sources. Names are looked up on first use, so importing this folder imports no part of torch: some parts
take seconds.

    from torchport.torch_private import FakeTensor

Private attributes of torch's objects are wrapped by the functions of `attributes.py`. Some names do not count
as private, since torch's documentation or all of its users rely on them: `Tensor._version`; `_parameters`,
`_buffers`, `_modules` and the hooks of `nn.Module`; `OpOverload._schema`; ops whose names begin with an
underscore, such as `torch.ops.aten._to_copy`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchport.torch_private.attributes import add_script_attribute as add_script_attribute
from torchport.torch_private.attributes import before_compiling as before_compiling
from torchport.torch_private.attributes import compiling as compiling
from torchport.torch_private.attributes import count_size_guards as count_size_guards
from torchport.torch_private.attributes import custom_op_module as custom_op_module
from torchport.torch_private.attributes import dual_level as dual_level
from torchport.torch_private.attributes import dynamo_lock as dynamo_lock
from torchport.torch_private.attributes import filter_annotations as filter_annotations
from torchport.torch_private.attributes import forget_traced_nodes as forget_traced_nodes
from torchport.torch_private.attributes import functorch_transform as functorch_transform
from torchport.torch_private.attributes import is_dynamo_loaded as is_dynamo_loaded
from torchport.torch_private.attributes import is_static_input as is_static_input
from torchport.torch_private.attributes import is_view as is_view
from torchport.torch_private.attributes import last_node as last_node
from torchport.torch_private.attributes import mark_as_parameter as mark_as_parameter
from torchport.torch_private.attributes import overload_name as overload_name
from torchport.torch_private.attributes import pop_functorch_levels as pop_functorch_levels
from torchport.torch_private.attributes import qualified_name as qualified_name
from torchport.torch_private.attributes import replace_backends as replace_backends
from torchport.torch_private.attributes import replace_target_format as replace_target_format
from torchport.torch_private.attributes import run_kernel as run_kernel
from torchport.torch_private.attributes import script_type as script_type
from torchport.torch_private.attributes import sequence_number as sequence_number
from torchport.torch_private.attributes import set_arguments as set_arguments
from torchport.torch_private.attributes import set_fake_tensor as set_fake_tensor
from torchport.torch_private.attributes import size_guards as size_guards
from torchport.torch_private.attributes import state_variables as state_variables
from torchport.torch_private.attributes import storage_key as storage_key
from torchport.torch_private.compiled_code import load_kernel_library as load_kernel_library
from torchport.torch_private.compiled_code import load_static_kernel as load_static_kernel
from torchport.torch_private.compiled_code import static_kernel as static_kernel
from torchport.torch_private.compiled_code import wrapper_function as wrapper_function
from torchport.torch_private.names import COMPILER_MODULES as COMPILER_MODULES
from torchport.torch_private.names import DYNAMO as DYNAMO
from torchport.torch_private.names import EXPORT_LOGGER as EXPORT_LOGGER
from torchport.torch_private.names import FAKE_TENSOR_LOGGER as FAKE_TENSOR_LOGGER
from torchport.torch_private.names import FUNCTORCH_MODULES as FUNCTORCH_MODULES
from torchport.torch_private.names import NAMES, find
from torchport.torch_private.names import PYTREE_LOGGER as PYTREE_LOGGER
from torchport.torch_private.names import SCRIPT_OBJECT as SCRIPT_OBJECT
from torchport.torch_private.names import TRACED_SCRIPT as TRACED_SCRIPT

if TYPE_CHECKING:
    import torch
    import torch._C
    import torch._C._autograd
    import torch._C._dynamo.guards
    import torch._C._functorch
    import torch._decomp
    import torch._export.utils
    import torch._functorch.config
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
    from torch._C import Argument as Argument
    from torch._C import BufferDict as BufferDict
    from torch._C import DispatchKey as DispatchKey
    from torch._C import ParameterDict as ParameterDict
    from torch._C import ScriptMethod as ScriptMethod
    from torch._C import StringType as StringType
    from torch._C._dynamo.guards import TensorGuards as TensorGuards
    from torch._C._functorch import is_functorch_wrapped_tensor as is_functorch_wrapped_tensor
    from torch._C._functorch import peek_interpreter_stack as peek_interpreter_stack
    from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
    from torch._dynamo.backends.common import aot_autograd as aot_autograd
    from torch._dynamo.backends.debugging import aot_eager as aot_eager
    from torch._dynamo.convert_frame import compile_lock as compile_lock
    from torch._dynamo.exc import RestartAnalysis as RestartAnalysis
    from torch._functorch.aot_autograd import make_boxed_func as make_boxed_func  # type: ignore[attr-defined]  # imported there, not exported
    from torch._guards import TracingContext as TracingContext
    from torch._guards import detect_fake_mode as detect_fake_mode
    from torch._guards import tracing as tracing
    from torch._higher_order_ops.effects import has_effects as has_effects
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir as triton_cache_dir
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner as CachingAutotuner
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
    from torch._subclasses.functional_tensor import FunctionalTensorMode as FunctionalTensorMode
    from torch._subclasses.functional_tensor import dispatch_functionalize as dispatch_functionalize
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

    tensor_data_pointer = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr  # type: ignore[attr-defined]  # the stubs lack it
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
    partition_config = torch._functorch.config
    min_cut_partition = torch._functorch.partitioners.min_cut_rematerialization_partition
    remove_effect_tokens = torch.export._remove_effect_tokens_pass._remove_effect_tokens
    without_fake_mode = torch.export.exported_program._disable_prexisiting_fake_mode
    decompose_exported_program = torch.export.exported_program._decompose_exported_program
    standalone_compile = torch._inductor.standalone_compile
    has_data_mutation = torch._functionalize_has_data_mutation  # type: ignore[attr-defined]  # the stubs lack it
    keeping_composites = torch.export.exported_program._override_composite_implicit_decomp
    without_backend_decompositions = torch.export._trace._ignore_backend_decomps
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
    has_global_hooks = torch.nn.modules.module._has_any_global_hook
    function_modes = torch.overrides._get_current_function_mode_stack
    pop_function_mode = torch.overrides._pop_mode
    push_function_mode = torch.overrides._push_mode
    tracing_state = torch._guards._TLS
    default_device_state = torch._GLOBAL_DEVICE_CONTEXT
    export_program = torch.export._trace._export
    export_onnx = torch.onnx._internal.exporter._core.export


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = find(name)
    globals()[name] = found  # later lookups bypass this function
    return found

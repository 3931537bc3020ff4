"""Captures a model as an `ExportedProgram` from tensors to tensors, whatever its inputs and outputs are.

`torch.export` refuses classes that are not registered as pytrees. Here the model is wrapped: the
wrapper takes the inputs' tensors, rebuilds the inputs, calls the model, and flattens its result.
`torch.export` only sees tensors in and tensors out.
"""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.fx.traceback
from torch import nn
from torch.export import ExportedProgram

from torchport.capture.callable_module import as_module, check_not_lazy
from torchport.capture.exported.deferred_guards import remove_assertions
from torchport.capture.exported.dynamic_shapes import spread_over_leaves
from torchport.capture.exported.failure import explain_failure
from torchport.capture.exported.fake_kernels import register_fake_kernels
from torchport.capture.exported.meta_tensors import WithoutValues
from torchport.capture.exported.module_state import ModuleState
from torchport.capture.exported.shared_memory import SharedResult, WatchedMemory
from torchport.capture.quiet import quiet_torch
from torchport.capture.replaced_buffers import held_buffers, write_replaced
from torchport.capture.source_lines import SourceLines
from torchport.capture.untouched import StandIn, leaves_torch_as_it_was, nothing_remembered
from torchport.errors import CaptureError
from torchport.structure import Flat, Structure, call_arguments, flatten_call
from torchport.structure.flatten import flatten_result
from torchport.torch_private import disable_current_modes, export_program, is_view, use_lazy_graph_module

_log = logging.getLogger(__name__)
_RECURRENT = tuple(f"aten.{name}." for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
# How torch says that a guard might not hold for all sizes of a dimension.
_VIOLATED = "Constraints violated"


@dataclass(frozen=True, slots=True)
class CapturedModel:
    """A model as a graph.

    Args:
        name: the model's name.
        module: the caller's own module.
        program: the graph, from the inputs' tensors to the result's tensors.
        leaves: the input tensors it was captured with.
        inputs: the structure of `(args, kwargs)`.
        result: the structure of the model's result.
        state: the Python state that the graph was captured with, except what the model itself changes.
        shared: the results that share memory in ways that the graph does not show.
        shared_by_size: the results with dynamic sizes that share memory; see `WatchedMemory.shared_by_size`.
    """

    name: str
    module: nn.Module
    program: ExportedProgram
    leaves: tuple[torch.Tensor, ...]
    inputs: Structure
    result: Structure
    state: ModuleState
    shared: tuple[SharedResult, ...] = ()
    shared_by_size: tuple[tuple[int, int | None], ...] = ()


@leaves_torch_as_it_was
def export(
    model: nn.Module | Callable[..., object],
    args: Sequence[object],
    kwargs: Mapping[str, object] | None = None,
    *,
    name: str = "",
    dynamic_shapes: object = None,
) -> CapturedModel:
    """Capture a model as an exported graph.

    Args:
        model: a module, or any callable on tensors.
        args, kwargs: example inputs, of any class.
        name: the model's name in messages.
        dynamic_shapes: which dimensions may vary, as for `torch.export`.

    Returns:
        The graph and the structures of its inputs and result. Nodes carry their module path and source line.

    Raises:
        CaptureError: the model raises, or depends on its data in a way that a graph cannot express.

    Example:
        >>> export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)).result.paths
        ('output',)
    """
    module = as_module(model)
    name = name or type(model).__name__
    check_not_lazy(module, name)
    args, kwargs = call_arguments(args, kwargs)
    flat = flatten_call(args, kwargs)
    dims = spread_over_leaves(module, args, kwargs or {}, flat, dynamic_shapes)
    state = ModuleState(module)
    try:
        program, call = _trace(module, flat, dims)
    except Exception as error:  # a model may raise anything: it is explained here, once
        raise explain_failure(name, module, args, kwargs or {}, error) from error
    if call.saw_seeding:
        _refuse_random_numbers(name, program)
    _refuse_recurrent_autocast(name, program)
    if call.changes:
        named = ", ".join(f"self.{path}" for path in call.changes[:5])
        _log.warning("%s: its forward changes %s; the captured graph does not", name, named)
    state.forget(call.changes)
    assert call.result is not None
    if dynamic_shapes is None and call.result.has_symbols:
        raise CaptureError(
            "the model returns a number that depends on the values of a tensor",
            where=name,
            remedy="return a tensor, such as torch.tensor(number), or compute the number in the caller",
        )
    return CapturedModel(
        name,
        module,
        program,
        tuple(flat.leaves),
        flat.structure,
        call.result,
        state,
        call.shared,
        call.shared_by_size,
    )


def _random_state() -> bytes:
    """Return the state of torch's generator, outside of any trace."""
    with disable_current_modes():
        return torch.get_rng_state().numpy().tobytes()


def _refuse_random_numbers(name: str, program: ExportedProgram) -> None:
    """Refuse random numbers in a model that seeds them, which no graph shows."""
    for node in program.graph.nodes:
        if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            raise CaptureError(
                f"the model seeds torch's random numbers and then draws some, with {node.target}: a graph "
                "cannot seed",
                where=name,
                remedy='seed before the call, or use torch.compile(model, backend="torchport")',
            )


def _refuse_recurrent_autocast(name: str, program: ExportedProgram) -> None:
    """Refuse recurrent layers under autocast on a GPU: cuDNN runs them in float16, which no graph shows."""
    if not (torch.is_autocast_enabled("cuda") and torch.backends.cudnn.enabled):
        return
    for node in program.graph.nodes:
        if not str(node.target).startswith(_RECURRENT):
            continue
        given = node.args[0].meta["val"]
        if given.device.type == "cuda" and given.dtype is not torch.float16:
            raise CaptureError(
                f"under autocast, cuDNN computes {node.target} in float16, which torch.export does not see",
                where=name,
                remedy="call it outside autocast, convert the layer to float16 yourself, or use "
                'torch.compile(model, backend="torchport")',
            )


@dataclass(slots=True)
class _Call:
    """What is recorded about the model's call besides its graph."""

    result: Structure | None = None
    saw_transforms: bool = False
    saw_seeding: bool = False
    changes: Sequence[str] = ()
    shared: tuple[SharedResult, ...] = ()
    shared_by_size: tuple[tuple[int, int | None], ...] = ()


class _TensorsInTensorsOut(nn.Module):
    """Wraps the model: rebuilds its inputs from tensors, and flattens its result into tensors."""

    def __init__(self, stand_in: StandIn, flat: Flat, call: _Call) -> None:
        super().__init__()
        self.model = stand_in.module
        self._structure = flat.structure
        self._call = call
        self._names = _names_of_tensors(self.model)
        # Objects that the modules hold, such as their configuration, are the caller's: they are not rebuilt.
        self._shared = {
            id(held): stand_in.original(held) for part in self.model.modules() for held in vars(part).values()
        }

    def forward(self, *leaves: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model on inputs rebuilt from `leaves`, and return its result's tensors."""
        call, objects = self._structure.rebuild_with_objects(leaves)
        assert isinstance(call, tuple)  # the structure of (args, kwargs)
        args, kwargs = call
        buffers = held_buffers(self.model)
        state = ModuleState(self.model)
        memory = WatchedMemory(leaves, self)
        lines, random = SourceLines(sys._getframe()), _random_state()
        try:
            with nothing_remembered(self.model), torch.fx.traceback.preserve_node_meta(), lines:
                value = self.model(*args, **kwargs)
        finally:
            self._call.saw_transforms = lines.saw_transforms
            # Random numbers of fake tensors are not drawn.
            self._call.saw_seeding = lines.saw_seeding or _random_state() != random
        torch.fx.traceback.current_meta.pop("stack_trace", None)
        flat = flatten_result(value, leaves, objects, self._structure, by_reference=self._shared)
        self._call.shared = memory.shared(flat.leaves)
        self._call.shared_by_size = memory.shared_by_size(flat.leaves)
        write_replaced(buffers)
        self._call.result = flat.structure
        # torch.export has replaced the model's tensors with fake ones: they are matched by name.
        self._call.changes = state.changed(self._names | _names_of_tensors(self.model))
        return tuple(flat.leaves)


def _names_of_tensors(module: nn.Module) -> dict[int, str]:
    return {id(tensor): name for name, tensor in (*module.named_parameters(), *module.named_buffers())}


def _trace(module: nn.Module, flat: Flat, dims: object) -> tuple[ExportedProgram, _Call]:
    call, again = _Call(), _Call()
    if dims is not None:
        register_fake_kernels()
    try:
        return _trace_once(module, flat, dims, call, torch.export.export), call
    except Exception as error:
        if call.saw_transforms:
            # torch.export itself traces before autograd (pre-dispatch), where functorch's transforms fail.
            after_autograd = functools.partial(export_program, pre_dispatch=False)
            return _trace_once(module, flat, dims, again, after_autograd), again
        if dims is None or not str(error).startswith(_VIOLATED):
            raise
        program = _trace_with_proved_guards(module, flat, dims, again)
        if program is None:
            raise
        return program, again


def _trace_with_proved_guards(
    module: nn.Module, flat: Flat, dims: object, call: _Call
) -> ExportedProgram | None:
    """Trace a model of which torch does not see that its guards hold for all sizes; None if they do not."""
    with_assertions = functools.partial(torch.export.export, prefer_deferred_runtime_asserts_over_guards=True)
    try:
        program = _trace_once(module, flat, dims, call, with_assertions)
    except Exception:  # noqa: BLE001  # the error of the first try says which size is at fault
        return None
    return program if remove_assertions(program) else None


def _trace_once(
    module: nn.Module, flat: Flat, dims: object, call: _Call, trace: Callable[..., ExportedProgram]
) -> ExportedProgram:
    without_values = WithoutValues()
    # With dynamic shapes, torch creates the fake tensors itself.
    note = without_values.note if dims is None else _itself
    stand_in = StandIn(module, note)
    wrapper = _TensorsInTensorsOut(stand_in, flat, call)
    wrapper.training = module.training
    leaves = tuple(note(_without_base(leaf)) for leaf in flat.leaves)
    with quiet_torch(), torch.no_grad(), without_values.exporting(), use_lazy_graph_module(True):
        shapes = None if dims is None else (dims,)
        return trace(wrapper, leaves, dynamic_shapes=shapes, strict=False)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _without_base(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view as a tensor without a base, since torch would add guards on the base's sizes.

    When the graph is decomposed, the base no longer exists, and these guards fail.
    """
    return tensor.detach().requires_grad_(tensor.requires_grad) if is_view(tensor) else tensor

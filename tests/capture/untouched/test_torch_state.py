"""Torch's state is the same after every capture."""

import contextlib
import threading

import pytest
import torch
import torch.fx.traceback
from torch import nn
from torch._C import _functorch
from torch._guards import TracingContext
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import torchport
from torchport.capture import capture_graphs, export
from torchport.errors import TorchportError


def torch_state():
    """Return everything that a capture could leave changed, as plain values."""
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "keys": (
            str(torch._C._dispatch_tls_local_include_set()),
            str(torch._C._dispatch_tls_local_exclude_set()),
        ),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "made on": torch.ones(1).device,
        "random": torch.get_rng_state().tolist(),
        "dispatch modes": [id(mode) for mode in _get_current_dispatch_mode_stack()],
        "function modes": [id(mode) for mode in _get_current_function_mode_stack()],
        "levels": _functorch.get_dynamic_layer_stack_depth(),
        "dual level": forward_ad._current_level,
        "meta": (id(torch.fx.traceback.current_meta), dict(torch.fx.traceback.current_meta)),
        "keeps meta": torch.fx.traceback.has_preserved_node_meta(),
        "autocast": [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "tracing": TracingContext.try_get(),
        "compiling": (torch.compiler.is_compiling(), torch.compiler.is_exporting()),
        "threads": threading.active_count(),
    }


class Refused(nn.Module):
    """Runs a layer, and then the given function, which makes captures fail."""

    def __init__(self, does):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.does = does

    def forward(self, x):
        return self.does(self, self.linear(x))


class LeftFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class LeftDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def raises(error):
    raise error


def in_transforms(x):
    return torch.vmap(torch.func.grad(lambda row: raises(ValueError("inside")) + row.sum()))(x)


def in_levels(model, x):
    _functorch._grad_increment_nesting()
    _functorch._vmap_increment_nesting(2, "error")
    forward_ad.enter_dual_level()
    raise ValueError("with levels pushed")


def in_modes(model, x):
    LeftFunctionMode().__enter__()
    LeftDispatchMode().__enter__()
    raise ValueError("with modes pushed")


def in_switches(model, x):
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.set_float32_matmul_precision("medium")
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_cache_enabled(False)
    torch.set_grad_enabled(not torch.is_grad_enabled())
    torch.manual_seed(99)
    torch.fx.traceback.current_meta["left"] = "behind"
    raise ValueError("with switches set")


def on_another_device(model, x):
    torch.set_default_device("meta")
    raise ValueError("with another default device")


def in_inference_mode(model, x):
    with torch.inference_mode():
        raise ValueError("in inference mode")


# Reasons for which captures refuse models, and what models may do to torch's state before they raise.
REFUSED = {
    "raises": lambda model, x: raises(ValueError("no")),
    "interrupted": lambda model, x: raises(KeyboardInterrupt()),
    "exits": lambda model, x: raises(SystemExit(3)),
    "wrong shapes": lambda model, x: x @ torch.ones(7, 7),
    "branches on a value": lambda model, x: x * 2 if x.sum() > 0 else x,
    "reads a value": lambda model, x: x * x.sum().item(),
    "reads values": lambda model, x: x + sum(x.flatten().tolist()),
    "as many as a value says": lambda model, x: torch.zeros(int(x.abs().sum())) + 1,
    "to numpy": lambda model, x: torch.from_numpy(x.detach().numpy() * 2),
    "grows a buffer": lambda model, x: setattr(model, "_buffers", {"b": torch.cat([x, x])}) or x,
    "keeps a tensor": lambda model, x: setattr(model, "last", x) or x,
    "replaces a weight": lambda model, x: setattr(model.linear, "weight", nn.Parameter(x)) or x,
    "random": lambda model, x: x + torch.rand(3) + torch.randn(x.shape),
    "in transforms": lambda model, x: in_transforms(x),
    "within autocast": lambda model, x: torch.autocast("cpu").__enter__() and raises(ValueError("no")),
    "within no_grad": lambda model, x: torch.no_grad().__enter__() or raises(ValueError("no")),
    "levels": in_levels,
    "modes": in_modes,
    "switches": in_switches,
    "device": on_another_device,
    "inference mode": in_inference_mode,
}
WAYS = {
    "export": lambda model, x: export(model, (x,)),
    "compile": lambda model, x: torchport.compile(model, (x,), target="host"),
    "explain": lambda model, x: torchport.explain(model, (x,), target="openvino"),
    "analyze": lambda model, x: torchport.analyze(model, (x,)),
    "analyze backward": lambda model, x: torchport.analyze(model, (x,), backward=True),
    "trace_graph": lambda model, x: torchport.trace_graph(model, (x,)),
    "capture_graphs": lambda model, x: capture_graphs(model, (x,), backward=True),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("refused", REFUSED)
def test_torch_is_as_it_was_after_every_refusal(way, refused):
    model, x = Refused(REFUSED[refused]), torch.randn(2, 3)
    WAYS[way](nn.Linear(3, 3), x)  # triggers imports and initialization on first use
    before = torch_state()
    with contextlib.suppress(TorchportError, KeyboardInterrupt, SystemExit):
        WAYS[way](model, x)
    assert torch_state() == before
    torch.testing.assert_close(torch.vmap(torch.sin)(x), torch.sin(x))


@pytest.mark.parametrize("way", WAYS)
def test_a_callers_own_state_is_kept_too(way):
    model, x = Refused(REFUSED["interrupted"]), torch.randn(2, 3)
    mode = LeftFunctionMode()
    with mode, torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        torch.set_default_dtype(torch.float64)
        try:
            before = torch_state()
            with pytest.raises((TorchportError, KeyboardInterrupt)):
                WAYS[way](model, x)
            assert torch_state() == before
        finally:
            torch.set_default_dtype(torch.float32)


class Gradients(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 1)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        rows = torch.vmap(torch.func.grad(lambda row: self.linear(row).tanh().sum()))(x)
        return rows * self.calls


class Jacobians(nn.Module):
    def forward(self, x):
        hessian = torch.func.hessian(lambda y: (y**3).sum())(x[0])
        return torch.func.jacrev(torch.sin)(x[0]), torch.func.jacfwd(torch.cos)(x[0]), hessian


@pytest.mark.parametrize(
    ("make", "target"),
    [
        (Gradients, "openvino"),
        (Jacobians, "host"),
        pytest.param(Gradients, "host", marks=pytest.mark.conformance),
        pytest.param(Jacobians, "openvino", marks=pytest.mark.conformance),
    ],
)
def test_functorchs_transforms_are_compiled(make, target):
    torch.manual_seed(0)
    model, eager, x = make(), make(), torch.randn(4, 3)
    eager.load_state_dict(model.state_dict())
    compiled = torchport.compile(model, (x,), target=target)
    assert compiled.coverage.ops_remain < compiled.coverage.ops_before
    for _ in range(2):
        y = torch.randn(4, 3)
        torch.testing.assert_close(compiled(y), eager(y), rtol=1e-3, atol=1e-4)
    assert torchport.analyze(model, (x,)).cost.vector_flops > 0
    assert torchport.explain(model, (x,), target=target).ops_before > 0


class _Meets(nn.Module):
    """During its capture, another thread enters a function that Dynamo skips, and stays inside."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        if torch.compiler.is_exporting() and not _MET["entered"].is_set():
            _MET["thread"].start()
            assert _MET["entered"].wait(60)
        return self.linear(x)


_MET = {}


def test_what_another_thread_runs_is_not_noted_in_what_is_exported():
    _MET.update(entered=threading.Event(), leave=threading.Event())
    raised, noted = [], []

    @torch.compiler.disable
    def stay():
        noted.append(torch.fx.traceback.current_meta.get("custom", {}).get("_torchdynamo_disable_method"))
        _MET["entered"].set()
        _MET["leave"].wait(60)

    def run():
        try:
            stay()
            (torch.ones(2, device="meta") + 1).sum()
        except KeyError as error:
            raised.append(error)

    _MET["thread"] = threading.Thread(target=run)
    x = torch.ones(1, 2)
    torchport.compile(_Meets(), (x,), target="host")
    _MET["leave"].set()
    _MET["thread"].join(60)
    assert raised == []
    assert noted != ["stay"]


def test_a_thread_that_exports_by_itself_notes_what_it_runs():
    noted = []

    @torch.compiler.disable
    def double(x):
        noted.append(torch.fx.traceback.current_meta["custom"]["_torchdynamo_disable_method"])
        return x * 2

    class Doubles(nn.Module):
        def forward(self, x):
            return double(x) + 1

    torchport.compile(nn.Linear(2, 2), (torch.ones(1, 2),), target="host")
    torch.export.export(Doubles(), (torch.ones(2),), strict=False)
    assert set(noted) == {"double"}

"""A model whose weights are being quantized: the new layers, their errors, and the copy that has them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import nn

from torchport.quantization.calibration import Progress, call_of
from torchport.quantization.layers import Layer
from torchport.quantization.lockstep import graph_of, run_in_lockstep
from torchport.quantization.model_runs import call, copy_model, stand_in
from torchport.quantization.native_format_linear import OwnFormLinear
from torchport.quantization.noise import Noise
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.weight_forms import Form, choose_forms
from torchport.quantization.weight_layers import FourBitLinear, WeightOnlyEmbedding, WeightOnlyLinear
from torchport.quantization.weight_plans import EMBEDDING, weight_owners
from torchport.quantization.weight_rounding import Moments, Rounded, round_groups, round_with_data
from torchport.quantization.weight_sensitivity import output_errors
from torchport.records.quantization import LayerPlan, LayerReport
from torchport.structure import flatten_call

# The approximate size of a layer in a compressed file, apart from its weight.
_LAYER_BYTES = 2500
_ROWS_FOR_ERRORS = 256  # approximate number of weight rows to compare the errors of group sizes on

_Quantized = WeightOnlyLinear | FourBitLinear | WeightOnlyEmbedding | OwnFormLinear


class WeightQuantization:
    """A model whose weights are being quantized.

    Args:
        model: the caller's model, which is not modified.
        layers: its layers that have weights.
        plans: each layer's plan, by the layer's name.
        options: the quantization options.
    """

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[Layer],
        plans: dict[str, LayerPlan],
        options: QuantizationOptions,
    ) -> None:
        self.plans = plans
        self.quantized: dict[str, _Quantized] = {}
        self._model = model
        self._options = options
        self._paths = {layer.name: layer.node for layer in layers}
        self._owners = weight_owners(model, layers)  # of shared weights
        self._sqnr: dict[str, float] = {}
        # The error power in the results from each layer's rounding to four bits, relative to their power.
        self._errors: dict[str, float] = {}

    def quantize(self, items: Sequence[object], progress: Progress) -> int:
        """Make the quantized layers, fitted to data if there are any; return the number of items used."""
        fitted_to = self._fit(items, progress) if items else 0
        for name in self._chosen():
            if name not in self.quantized:
                self._set(name, None)
        return fitted_to

    def _chosen(self, bits: int | None = None) -> list[str]:
        """Return the layers to quantize: embeddings first, since other layers may share their weights."""
        found = [
            name
            for name, plan in self.plans.items()
            if plan.precision == "weight_only" and bits in (None, plan.bits)
        ]
        return sorted(found, key=lambda name: self.plans[name].op != EMBEDDING)

    def _fit(self, items: Sequence[object], progress: Progress) -> int:
        """Quantize in call order, each layer fitted to its inputs from the layers quantized before it."""
        if not self._chosen(4):
            return 0
        floats, inputs = self._in_float32(), [_in_float32(item) for item in items]
        names = {path: name for name, path in self._paths.items()}
        graph = None
        if floats is self._model or _runs(floats, inputs[0]):
            owners = [self._paths[name] for name in self._chosen() if name not in self._owners]
            graph = graph_of(floats, inputs, owners)
        else:  # the model does not run in float32: it hard-codes a dtype, say
            floats, inputs = self._model, list(items)
        if graph is None:
            squares = mean_squares(floats, inputs)
            for name in self._chosen(4):
                importance = squares.get(self._paths[name])
                self._set(name, self._nearest(name, importance))
            return len(items)
        self._errors = {
            names[path]: error
            for path, error in output_errors(
                graph, {self._paths[name]: self._four_bits(name).weight.float() for name in self._chosen(4)}
            ).items()
        }
        self._choose_forms()
        reached = [names[path] for path in graph.weights.values()]
        wanted = [name for name in reached if name in self._chosen(4)]

        def quantize(path: str, known: Moments | None) -> torch.Tensor | None:
            name = names[path]
            plan = self.plans[name]
            if plan.precision != "weight_only":
                return None
            rounded = None
            if plan.bits == 4 and known is not None and known.is_known:
                symmetric = self._options.symmetric_weights
                rounded = round_with_data(self._weight(name).float(), known, self._group(name), symmetric)
            self._set(name, rounded, known)
            progress("Rounding", len(self.quantized), len(reached))
            return self.quantized[name].weight.float()

        if wanted:
            run_in_lockstep(graph, quantize, {self._paths[name] for name in wanted})
        return len(graph.items)

    def _in_float32(self) -> nn.Module:
        """Return the model in float32: a copy, unless it is already."""
        if all(each.dtype is torch.float32 or not each.is_floating_point() for each in _tensors(self._model)):
            return self._model
        return copy_model(self._model).float()

    def _choose_forms(self) -> None:
        """Choose bits and groups of all layers without a user's decision, within the size limit.

        If the requested forms exceed the limit already, they stay unchanged.
        """
        free = [name for name in self._chosen(4) if self.plans[name].reason == "default"]
        planned = () if self._options.plan is None else [plan.name for plan in self._options.plan.layers]
        free = [name for name in free if name not in planned and self._errors.get(name, 0.0) > 0.0]
        room = self._size_limit() - self._size()
        if not free or room < 0:
            return
        asked = sum(self._bytes(name, 4, self._group(name)) for name in free)
        for name, form in choose_forms({each: self._forms(each) for each in free}, asked + room).items():
            plan, sqnr = self.plans[name], -10 * math.log10(self._errors[name])
            if form.bits == 8:
                detail = f"in int4 it limits the results' SQNR to {sqnr:.1f} dB, and there is room for int8"
                self.plans[name] = replace(plan, bits=8, reason="sensitive", detail=detail)
            elif form.group != self._options.group_size:
                self.plans[name] = replace(plan, group_size=form.group)
            self._errors[name] = form.error
        for name, owner in self._owners.items():
            theirs = self.plans[owner]
            if self.plans[name].reason == "default" and self.plans[name].bits == 4 and owner in free:
                self.plans[name] = replace(
                    theirs, name=name, detail=theirs.detail and f"like {owner}: {theirs.detail}"
                )

    def _size_limit(self) -> float:
        """Return the size limit of all tensors in bytes that keeps the file within `size_ratio`."""
        numbers = sum(each.numel() for each in {id(each): each for each in _tensors(self._model)}.values())
        beside = _LAYER_BYTES * len(self.plans)
        return self._options.size_ratio * (2 * numbers + beside) - beside

    def _size(self) -> int:
        """Return the size of all tensors in bytes under the current plans."""
        size = sum(each.nbytes for each in {id(each): each for each in _tensors(self._model)}.values())
        for name in self._chosen():
            if name not in self._owners:
                size -= self._weight(name).nbytes
                size += self._bytes(name, self.plans[name].bits, self._group(name))
        return size

    def _forms(self, name: str) -> list[Form]:
        """Return the forms that a layer's weight can have, the smallest first.

        The result error of other group sizes is assumed proportional to their error in the weight itself.
        """
        weight, asked = self._weight(name), self._group(name)
        some = weight[:: math.ceil(len(weight) / _ROWS_FOR_ERRORS)].float()

        def loss(group: int) -> float:
            rounded = round_groups(some, group, self._options.symmetric_weights)
            held = rounded.grid.scale * (rounded.whole - rounded.grid.zero)
            return float((held.flatten(1) - some).square().sum())

        own, error = loss(asked), self._errors[name]
        groups = [
            group
            for group in (2 * asked, asked, asked // 2)
            if group == asked or (group % 2 == 0 and group > 0 and weight.shape[1] % group == 0)
        ]
        found = [
            Form(4, group, self._bytes(name, 4, group), error * loss(group) / own if own > 0 else error)
            for group in groups
        ]
        return [*found, Form(8, None, self._bytes(name, 8, asked), 0.0)]

    def _group(self, name: str) -> int:
        return self.plans[name].group_size or self._options.group_size

    def _bytes(self, name: str, bits: int, group: int) -> int:
        """Return the size of a layer's weight in bytes, including scales and zero points."""
        weight = self._weight(name)
        zero = 0 if self._options.symmetric_weights else 1
        if bits == 8:
            return weight.numel() + len(weight) * (weight.element_size() + zero)
        return weight.numel() // 2 + weight.numel() // group * (2 + zero)

    def _weight(self, name: str) -> torch.Tensor:
        weight = self._model.get_submodule(self._paths[name]).weight
        assert isinstance(weight, torch.Tensor)
        return weight.detach()

    def _nearest(self, name: str, importance: torch.Tensor | None = None) -> Rounded:
        symmetric = self._options.symmetric_weights
        return round_groups(self._weight(name).float(), self._group(name), symmetric, importance)

    def _four_bits(self, name: str, rounded: Rounded | None = None) -> _Quantized:
        linear = self._model.get_submodule(self._paths[name])
        assert isinstance(linear, nn.Linear)
        owner = self.quantized.get(self._owners.get(name, ""))
        if not isinstance(owner, FourBitLinear) or self._group(self._owners[name]) != self._group(name):
            owner = None
        return FourBitLinear(linear, self._group(name), self._options.symmetric_weights, rounded, owner)

    def _set(self, name: str, rounded: Rounded | None, known: Moments | None = None) -> None:
        made = self._four_bits(name, rounded) if self.plans[name].bits == 4 else self._eight_bits(name)
        self.quantized[name] = made
        self._sqnr[name] = _sqnr(made.weight.detach().float(), self._weight(name).float(), known)

    def _eight_bits(self, name: str) -> _Quantized:
        module, symmetric = self._model.get_submodule(self._paths[name]), self._options.symmetric_weights
        owner = self.quantized.get(self._owners.get(name, ""))
        if isinstance(module, nn.Embedding):
            return WeightOnlyEmbedding(
                module, symmetric, owner if isinstance(owner, WeightOnlyEmbedding) else None
            )
        assert isinstance(module, nn.Linear)
        stored = owner if isinstance(owner, (WeightOnlyEmbedding, WeightOnlyLinear)) else None
        return WeightOnlyLinear(module, symmetric, stored)

    def worst_first(self) -> list[str]:
        """Return the layers that can have a higher precision and that no option fixes, the worst first."""
        free = [name for name in self.quantized if self.plans[name].reason == "default"]
        free = [name for name in free if self._owners.get(name) not in free]  # followers of a free owner
        if self._options.bits == 4:
            free = [name for name in free if self.plans[name].bits == 4]
        if all(name in self._errors for name in free):
            return sorted(free, key=lambda name: self._errors[name], reverse=True)
        return sorted(free, key=lambda name: self._sqnr[name])

    def build(self, finer: Collection[str] = ()) -> nn.Module:
        """Return the quantized model, with the layers `finer` in eight bits instead of four, or in floats."""
        finer = self._with_followers(finer)
        replaced: dict[str, nn.Module] = {}
        for name, new in self.quantized.items():
            if name not in finer:
                replaced[self._paths[name]] = new
            elif self.plans[name].bits == 4:
                replaced[self._paths[name]] = self._eight_bits(name)
        return copy_model(self._model, replaced).eval().requires_grad_(False)

    def _with_followers(self, names: Collection[str]) -> list[str]:
        """Return layers, followed by those that share their weights, unless an option fixes them."""
        followers = [
            name
            for name, owner in self._owners.items()
            if owner in names and name in self.quantized and self.plans[name].reason == "default"
        ]
        return [*names, *followers]

    def settle(self, sensitive: Sequence[str]) -> None:
        """Raise the precision of these layers permanently."""
        for name in self._with_followers(sensitive):
            plan, sqnr = self.plans[name], self._sqnr[name]
            detail = f"its SQNR in int{plan.bits} is {sqnr:.1f} dB, and the model misses its accuracy"
            if plan.bits == 4:
                self.plans[name] = replace(plan, bits=8, group_size=None, reason="sensitive", detail=detail)
                self._set(name, None)
            else:
                self.plans[name] = replace(plan, precision="float", reason="sensitive", detail=detail)
                del self.quantized[name]

    def put_back(self, detail: str) -> None:
        """Put all layers that no option fixes back to floats: quantized, the model is slower."""
        for name in list(self.quantized):
            plan = self.plans[name]
            if plan.reason != "kept_by_option":
                self.plans[name] = replace(plan, precision="float", reason="slower", detail=detail)
                del self.quantized[name]

    def note(self) -> str:
        """Return a note for the report on how weights are stored, if any."""
        return ""

    def reports(self) -> tuple[LayerReport, ...]:
        """Return the report of each layer, worst first."""
        rows = [
            LayerReport(
                plan.name, plan.op, plan.precision, plan.reason, sqnr_isolated=self._sqnr.get(plan.name)
            )
            for plan in self.plans.values()
        ]
        return tuple(sorted(rows, key=_sqnr_of))


def _sqnr_of(row: LayerReport) -> float:
    return math.inf if row.sqnr_isolated is None else row.sqnr_isolated


def _sqnr(made: torch.Tensor, weight: torch.Tensor, known: Moments | None) -> float:
    """Return the SQNR of a layer's results on the inputs it was fitted to, or else of its weight."""
    if known is None or not known.is_known:
        noise = Noise()
        noise.add(made, weight)
        return noise.sqnr
    signal, error = (
        float(((each @ known.squares) * each).double().sum()) for each in (weight, made - weight)
    )
    return 10 * math.log10(signal / error) if signal > 0.0 and error > 0.0 else math.inf


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _in_float32(item: object) -> object:
    """Return an item with its floating-point tensors in float32."""
    flat = flatten_call(*call_of(item))
    wide = [leaf.float() if leaf.is_floating_point() else leaf for leaf in flat.leaves]
    args, kwargs = cast("tuple[tuple[object, ...], dict[str, object]]", flat.structure.rebuild(wide))
    return kwargs or args


def _runs(model: nn.Module, item: object) -> bool:
    try:
        call(stand_in(model), *call_of(item))
    except Exception:  # noqa: BLE001  # a model may raise anything
        return False
    return True


def mean_squares(model: nn.Module, items: Sequence[object]) -> dict[str, torch.Tensor]:
    """Return the mean square of each input feature, for each linear layer that the items reach."""
    totals: dict[str, torch.Tensor] = {}
    counts: Counter[str] = Counter()
    copied = copy_model(model)  # hooks are never registered on the caller's model

    def watch(path: str, linear: nn.Linear) -> None:
        def add(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = args[0] if args else kwargs["input"]
            rows = given.detach().float().reshape(-1, linear.in_features)
            totals[path] = totals.get(path, torch.zeros(())) + rows.square().sum(0)
            counts[path] += len(rows)

        linear.register_forward_pre_hook(add, with_kwargs=True)

    for path, module in copied.named_modules():
        if type(module) is nn.Linear:
            watch(path, module)
    for item in items:
        call(copied, *call_of(item))
    return {path: total / counts[path] for path, total in totals.items() if counts[path]}

"""Decides which layers have their weights quantized, in how many bits, and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from torch import nn

from torchport.errors import QuantizationError, nearest
from torchport.quantization.layers import Layer, overridden
from torchport.quantization.options import QuantizationOptions, check_group_size
from torchport.records.quantization import LayerPlan

LINEAR, EMBEDDING = "aten.linear.default", "aten.embedding.default"


def find_weight_layers(model: nn.Module) -> list[Layer]:
    """Return the linear layers and embeddings of a model, by their paths."""
    ops = {nn.Linear: LINEAR, nn.Embedding: EMBEDDING}
    return [
        Layer(path, path or ops[type(module)].split(".")[1], ops[type(module)], True)
        for path, module in model.named_modules()
        if type(module) in ops
    ]


def weight_owners(model: nn.Module, layers: Iterable[Layer]) -> dict[str, str]:
    """Return the layers that share another layer's weight, mapped to its owner, by their names.

    The owner of a shared weight is its first embedding, or else its first linear layer.
    """
    tables_first = sorted(layers, key=lambda each: each.op != EMBEDDING)
    owners: dict[int, str] = {}
    for each in tables_first:
        owners.setdefault(id(_weight(model, each)), each.name)
    found = {each.name: owners[id(_weight(model, each))] for each in tables_first}
    return {name: owner for name, owner in found.items() if name != owner}


def _weight(model: nn.Module, layer: Layer) -> object:
    return model.get_submodule(layer.node).weight


def plans_of(
    model: nn.Module,
    layers: Sequence[Layer],
    options: QuantizationOptions,
    name: str,
    has_groups: bool = True,
) -> dict[str, LayerPlan]:
    """Return each layer's plan by its name, from the options, as far as the layer supports it.

    Args:
        model: the model.
        layers: its layers.
        options: the bits, the overrides, a plan.
        name: the model's name, for messages.
        has_groups: whether 4-bit weights have scales per group of inputs.

    Raises:
        QuantizationError: an override or a plan does not fit the model.
    """
    choices = overridden(layers, options.overrides, name)
    given = {plan.name: plan for plan in options.plan.layers} if options.plan is not None else {}
    for unknown in set(given) - {layer.name for layer in layers}:
        raise QuantizationError(
            f"the plan names the layer {unknown!r}, which the model does not have",
            where=name,
            remedy=nearest(unknown, [layer.name for layer in layers]),
        )
    wanted = {}
    for layer in layers:
        plan = LayerPlan(layer.name, layer.op, "weight_only", bits=_bits(layer, options))
        if layer.name in given and given[layer.name] != plan:
            plan = given[layer.name]
            if plan.reason == "default":
                plan = replace(plan, reason="kept_by_option", detail="by the plan")
        if layer.name in choices:
            precision, pattern = choices[layer.name]
            detail = f"by the override {pattern!r}"
            plan = replace(plan, precision=precision, reason="kept_by_option", detail=detail)
        wanted[layer.name] = plan
    others = _other_tables(model)
    found = {
        layer.name: _feasible(
            wanted[layer.name],
            model.get_submodule(layer.node),
            options.group_size if has_groups else 1,
            others,
            name,
            has_groups=has_groups,
        )
        for layer in layers
    }
    owners = weight_owners(model, layers)
    for follower, owner in owners.items():
        found |= _reconciled(found[follower], found[owner])
    for follower, owner in owners.items():  # again: another follower may have put the owner back to floats
        found |= _reconciled(found[follower], found[owner])
    return found


def _bits(layer: Layer, options: QuantizationOptions) -> int:
    return 8 if layer.op == EMBEDDING else options.bits


def _other_tables(model: nn.Module) -> set[int]:
    """Return the ids of weights of embeddings of subclasses of torch's own class: they stay in floats."""
    return {
        id(module.weight)
        for module in model.modules()
        if isinstance(module, nn.Embedding) and type(module) is not nn.Embedding
    }


def _feasible(
    plan: LayerPlan, module: nn.Module, group_size: int, others: set[int], where: str, *, has_groups: bool
) -> LayerPlan:
    """Return a layer's plan, or the closest one that the layer supports, with the reason."""
    if plan.precision == "float":
        return plan
    if plan.precision != "weight_only":
        raise QuantizationError(
            f"{plan.name} cannot be {plan.precision} with method weight_only",
            where=where,
            remedy='use method="ptq", or the precision weight_only or float for it',
        )
    assert isinstance(module, (nn.Linear, nn.Embedding))
    refusal = _refusal_of(module)
    if refusal:
        return _refused(plan, refusal)
    if id(module.weight) in others:
        return _refused(plan, "it shares the weight of an embedding of another class, which stays in floats")
    if isinstance(module, nn.Embedding):
        return replace(plan, bits=8)
    if has_groups and plan.group_size is not None:
        group_size = plan.group_size
        check_group_size(group_size, f"the group_size of {plan.name} in the plan")
    if plan.bits == 4 and module.in_features % group_size:
        detail = f"its {module.in_features} inputs do not divide into groups of {group_size}"
        return replace(plan, bits=8, reason="not_supported", detail=detail)
    return plan


def _refusal_of(module: nn.Linear | nn.Embedding) -> str:
    """Return why a layer's weight cannot be quantized, or an empty string."""
    weight: object = module._parameters.get("weight")
    if type(weight) is not nn.Parameter:
        return "its weight is not a plain parameter: a hook computes it, say"
    if "forward" in vars(module):
        return "its forward is overridden"
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return "it changes its weight when it is called: max_norm"
    if not weight.is_floating_point():
        return f"its weight is in {str(weight.dtype).removeprefix('torch.')}"
    if not weight.numel():
        return "its weight has no elements"
    if not bool(weight.isfinite().all()):
        return "its weight is not finite"
    return ""


def _refused(plan: LayerPlan, detail: str) -> LayerPlan:
    return replace(plan, precision="float", reason="not_supported", detail=detail)


def _reconciled(follower: LayerPlan, owner: LayerPlan) -> dict[str, LayerPlan]:
    """Return the plans of two layers that share a weight, reconciled: it is stored once, in one form."""
    kept = [plan for plan in (follower, owner) if plan.precision == "float"]
    if kept:
        detail = kept[0].detail
        follower, owner = (
            replace(plan, precision="float", reason=kept[0].reason, detail=detail)
            for plan in (follower, owner)
        )
    elif follower.bits == 4 and owner.op == EMBEDDING:
        detail = f"it shares the weight of {owner.name}, which is stored once, in eight bits"
        follower = replace(follower, bits=8, reason="not_supported", detail=detail)
    return {follower.name: follower, owner.name: owner}

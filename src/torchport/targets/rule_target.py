"""A base for targets that declare their ops as rules: one registry has all that a target knows of each op.

An op with a rule is kept whole and checked by it; one without is decomposed by torch, or stays on the host. A
rule may be for an op of any namespace.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic

import torch
from torch import fx
from typing_extensions import TypeVar

from torchport.records import SUPPORTED, Verdict
from torchport.targets.decompositions import core_decompositions, find_op, full_names, is_composite
from torchport.targets.integer_bounds import Bounds
from torchport.targets.node_checks import check_integers, check_tensors, is_random
from torchport.targets.target import Decompositions, OptionsT, Target
from torchport.targets.value_ranges import annotate, condition_of
from torchport.torch_private import OpOverload

Check = Callable[[fx.Node], "Verdict | None"]
Kinds = Mapping[str, frozenset[torch.dtype]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A target's support for an op; a target's own dataclass adds to it.

    Args:
        kinds: the kinds of tensors that the op supports, a letter each; `KINDS` maps them to dtypes.
        check: returns what is wrong with a call of it, or None.
        open: returns what is wrong with its open sizes, or None; without it, sizes must be fixed.
    """

    KINDS: ClassVar[Kinds] = {
        "f": frozenset({torch.float32}),
        "i": frozenset({torch.int64, torch.int32}),
        "b": frozenset({torch.bool}),
    }

    kinds: str
    check: Check | None = field(default=None, kw_only=True)
    open: Check | None = field(default=None, kw_only=True)

    @property
    def dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes that the op's tensors may have."""
        return frozenset().union(*[self.KINDS[kind] for kind in self.kinds])


RuleT = TypeVar("RuleT", bound=Rule, default=Rule)


class Rules(dict[str, RuleT]):
    """A registry: rules by the full names of ops, such as `aten.add.Tensor`."""

    def add(self, names: str, rule: RuleT) -> None:
        """Register ops, written as `add.Tensor quantized_decomposed.quantize_per_tensor.default …`.

        A name without a namespace is in `aten`.

        Raises:
            ValueError: an op has a rule already, or the rule has an unknown kind of tensors.
        """
        for kind in rule.kinds:
            if kind not in rule.KINDS:
                raise ValueError(f"no kind of tensors {kind!r}, in the rule for {names}")
        for name in full_names(names):
            if name in self:
                raise ValueError(f"two rules for {name}")
            self[name] = rule


class RuleTarget(Target[OptionsT], Generic[OptionsT, RuleT]):
    """A target that supports the ops of its registry, if their tensors, integers and arguments permit it."""

    # The range of integers that the device computes exactly, whatever their dtype.
    exact_integers: ClassVar[Bounds]
    no_lowering: ClassVar[str] = "{op} has no lowering to {target}"

    @abstractmethod
    def rules(self) -> Mapping[str, RuleT]:
        """Return the registry; it is not called if an island is only loaded."""

    def check(self, node: fx.Node, rule: RuleT, options: OptionsT) -> Verdict | None:
        """Return what is wrong with a call, or None; its tensors and integers are checked already."""
        return rule.check(node) if rule.check is not None else None

    def decompositions(self) -> Decompositions:
        """Decompose the ops without a rule; keep those with one."""
        rules = self.rules()
        return {op: how for op, how in core_decompositions().items() if str(op) not in rules}

    def kept_composites(self) -> Collection[OpOverload]:
        """Keep the composite ops that have a rule."""
        return tuple(op for op in map(find_op, self.rules()) if op is not None and is_composite(op))

    def prepare(self, graph_module: fx.GraphModule) -> None:
        """Bound the integers of the whole graph."""
        rules = self.rules()

        def is_outside(node: fx.Node) -> bool:
            """Whether a node's value certainly comes from outside the device."""
            if node.op == "call_function":
                return isinstance(node.target, OpOverload) and str(node.target) not in rules
            return node.op == "placeholder"

        annotate(graph_module, is_outside, self.exact_integers)

    def open_verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Return whether a node's rule permits open sizes."""
        rule = self.rules().get(str(node.target))
        if rule is None:
            return SUPPORTED  # `verdict` rejects it, with the reason
        return super().open_verdict(node, options) if rule.open is None else rule.open(node) or SUPPORTED

    def verdict(self, node: fx.Node, options: OptionsT) -> Verdict:
        """Return whether the target computes this node as torch does, by general checks and by its rule."""
        if node.target is operator.getitem:
            source = node.args[0]
            assert isinstance(source, fx.Node)
            return self.verdict(source, options)
        if not isinstance(node.target, OpOverload):
            return Verdict(False, "no_lowering", f"{node.target} is not an ATen op")
        name = str(node.target)
        rule = self.rules().get(name)
        if rule is None and is_random(node):
            return Verdict(
                False, "random", f"{name} draws random numbers, which only torch can repeat",
                "call model.eval() first if this is dropout",
            )  # fmt: skip
        if rule is None:
            return Verdict(False, "no_lowering", self.no_lowering.format(op=name, target=self.name))
        return (
            check_tensors(node, rule.dtypes)
            or check_integers(node, self.exact_integers)
            or self.check(node, rule, options)
            or _supported(node)
        )


def _supported(node: fx.Node) -> Verdict:
    condition = condition_of(node)
    return Verdict(True, detail=condition) if condition else SUPPORTED

"""Calibrates with nncf: where quantizers go, their ranges, smoothed weights and corrected biases.

nncf knows which ops OpenVINO computes in eight bits, and between which of them tensors stay in eight bits. It
works on a copy of the graph with static shapes; its decisions are read back from that copy by node name.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

from torchport.capture import quiet_torch
from torchport.capture.suppressed_output import STDOUT
from torchport.errors import QuantizationError, one_line
from torchport.quantization.calibration import CalibrationData, Progress
from torchport.quantization.decisions import Decisions, Edge, QuantizedWeight, Quantizer
from torchport.quantization.dynamic_graph import has_samples
from torchport.quantization.float_graph import FloatGraph, fixed_copy
from torchport.quantization.graph_tensors import tensor_of
from torchport.quantization.model_runs import naming_failing_item
from torchport.quantization.operands import operands
from torchport.quantization.options import QuantizationOptions
from torchport.quantization.products import reduces_weights

_ATTENTION = ("scaled_dot_product_attention", "softmax")
# Ops for which nncf itself knows which of their tensors are in floats.
_FLOATS_APART = ("embedding", "scaled_dot_product_attention")
# Ops of whose parts nncf itself knows which tensors they are.
_SPLITS = ("aten.split", "aten.chunk", "aten.unbind")
_QUANTIZE = "quantized_decomposed.quantize_per_tensor.default"
_DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"
_NO_TELEMETRY = "NNCF_CI"  # disables nncf's telemetry if set when it is imported


def calibrate(
    graph: FloatGraph, data: CalibrationData, options: QuantizationOptions, progress: Progress
) -> Decisions:
    """Run the calibration items through the graph and return the decisions.

    Raises:
        QuantizationError: nncf is not installed, refuses the graph, or finds a range that is not finite.
    """
    items = data.like_first(data.calibrating)
    fixed = fixed_copy(graph, data.load(items[0]))
    original = {node.name: node for node in fixed.graph.nodes}
    with _quiet() as nncf:
        reader = _reader(nncf, data, items, progress)
        try:
            with (
                torch.no_grad(),
                naming_failing_item(lambda item: fixed.forward(*data.load(item)), items, graph.name),
            ):
                quantized = _run(nncf, fixed, reader, len(items), options)
        except QuantizationError:
            raise
        except Exception as error:  # nncf raises many kinds
            raise QuantizationError(
                f"nncf cannot quantize the graph: {one_line(error)}",
                where=graph.name,
                remedy='try method="weight_only", or options={"overrides": {"PART.*": "float"}}',
            ) from error
    return _DecisionReader(quantized, fixed, original).decisions(graph.name)


@contextlib.contextmanager
def _quiet() -> Iterator[Any]:
    """Yield the nncf module, with its messages, progress bars and telemetry disabled."""
    # The lock first: the rest is process-wide, and one thread would restore what another has set.
    with quiet_torch(), STDOUT.held_back():
        before = os.environ.get(_NO_TELEMETRY)
        os.environ[_NO_TELEMETRY] = "1"
        level = logging.root.manager.disable
        logging.disable(logging.ERROR)
        try:
            yield _import_nncf()
        finally:
            logging.disable(level)
            if before is None:
                os.environ.pop(_NO_TELEMETRY, None)
            else:
                os.environ[_NO_TELEMETRY] = before


def _import_nncf() -> Any:
    try:
        import nncf
    except ImportError as error:
        raise QuantizationError(
            "nncf is not installed", where="quantize", remedy="pip install 'torchport[quantize]'"
        ) from error
    if importlib.util.find_spec("torchao") is None:
        raise QuantizationError(
            "torchao is not installed, and nncf needs it for graphs of torch.export",
            where="quantize",
            remedy="pip install torchao",
        )
    return nncf


def _reader(nncf: Any, data: CalibrationData, items: Sequence[int], progress: Progress) -> Any:
    seen: set[int] = set()

    def load(index: int) -> tuple[torch.Tensor, ...]:
        seen.add(index)
        progress("Calibrating", len(seen), len(items))
        return tuple(data.load(index))

    return nncf.Dataset(list(items), load)


def _run(nncf: Any, fixed: fx.GraphModule, reader: Any, count: int, options: QuantizationOptions) -> Any:
    from nncf.quantization.advanced_parameters import (
        AdvancedQuantizationParameters,
        AdvancedSmoothQuantParameters,
        OverflowFix,
        QuantizationParameters,
    )
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    ignored = [*_integer_ops(fixed), *_give_several_results_one_shape(fixed)]
    has_attention = any(word in str(node.target) for node in fixed.graph.nodes for word in _ATTENTION)
    smooth = has_attention if options.smooth_quant is None else options.smooth_quant
    ranges = {
        "mean_min_max": RangeEstimatorParametersSet.MEAN_MINMAX,
        "min_max": RangeEstimatorParametersSet.MINMAX,
        "quantile": RangeEstimatorParametersSet.MEAN_QUANTILE,
        "histogram": RangeEstimatorParametersSet.HISTOGRAM,
    }[options.ranges]
    presets = {
        "auto": None,
        "symmetric": nncf.QuantizationPreset.PERFORMANCE,
        "asymmetric": nncf.QuantizationPreset.MIXED,
    }
    advanced = AdvancedQuantizationParameters(
        overflow_fix=OverflowFix.ENABLE if reduces_weights(options) else OverflowFix.DISABLE,
        disable_bias_correction=not options.bias_correction or _has_single_samples(fixed),
        disable_channel_alignment=True,  # nncf silently lacks it for torch.export graphs
        weights_quantization_params=QuantizationParameters(per_channel=options.weights == "per_channel"),
        # Otherwise inputs of depthwise convolutions are quantized per channel, which few engines support.
        activations_quantization_params=QuantizationParameters(per_channel=False),
        activations_range_estimator_params=ranges,
        smooth_quant_alphas=AdvancedSmoothQuantParameters(matmul=0.95 if smooth else -1),
    )
    return nncf.quantize(
        fixed,
        reader,
        preset=presets[options.activations],
        subset_size=count,
        model_type=nncf.ModelType.TRANSFORMER if has_attention or smooth else None,
        ignored_scope=nncf.IgnoredScope(names=ignored, validate=False),
        advanced_parameters=advanced,
    )


def _has_single_samples(graph_module: fx.GraphModule) -> bool:
    """Whether a convolution's input has no batch dimension: nncf then takes another one for its channels."""
    convolutions = [node for node in graph_module.graph.nodes if "aten.conv" in str(node.target)]
    return any(not has_samples(node) for node in convolutions)


def _integer_ops(graph_module: fx.GraphModule) -> list[str]:
    """Return the ops with integer or boolean tensors: nncf assumes that every tensor is in floats."""
    return [
        node.name
        for node in graph_module.graph.nodes
        if node.op == "call_function"
        and not any(word in str(node.target) for word in _FLOATS_APART)
        and not all(_is_float(each) for each in (node, *operands(node)))
    ]


def _is_float(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point()


def _give_several_results_one_shape(graph_module: fx.GraphModule) -> list[str]:
    """Return the ops with several results, and those that choose one of them, which nncf is to ignore.

    nncf takes each result for one tensor: it needs the shape, and may put a quantizer on all of them.
    """
    found = []
    for node in graph_module.graph.nodes:
        results = node.meta.get("val")
        if isinstance(results, (tuple, list)) and not any(word in str(node.target) for word in _SPLITS):
            found += [node.name, *(user.name for user in node.users)]
            node.meta["val"] = next((each for each in results if isinstance(each, torch.Tensor)), None)
    return found


class _DecisionReader:
    """Extracts decisions from a graph that nncf quantized.

    Args:
        quantized: the graph that nncf returned.
        fixed: the graph that it was made from.
        original: the nodes of the latter, before nncf changed it, by their names.
    """

    def __init__(self, quantized: Any, fixed: fx.GraphModule, original: dict[str, fx.Node]) -> None:
        self._quantized = quantized
        self._fixed = fixed
        self._original = original

    def decisions(self, where: str) -> Decisions:
        """Return nncf's decisions.

        Raises:
            QuantizationError: a range is not finite.
        """
        found = Decisions()
        for node in self._quantized.graph.nodes:
            before = self._original.get(node.name)
            if before is None or node.op != "call_function" or before.target is not node.target:
                continue
            for place, value in enumerate(operands(node)):
                self._read(found, node, before, place, value)
        for (name, _), edge in found.edges.items():
            if isinstance(edge.quantizer, Quantizer) and not (
                math.isfinite(edge.quantizer.scale) and edge.quantizer.scale > 0
            ):
                raise QuantizationError(
                    f"the input range of {name} is not finite",
                    where=where,
                    remedy="leave infinite inputs out of the calibration data",
                )
        return found

    def _read(self, found: Decisions, node: fx.Node, before: fx.Node, place: int, value: fx.Node) -> None:
        if str(value.target) == "aten.sub.Tensor" and value.name not in self._original:
            # nncf quantizes the weights of norms along the wrong axis.
            weight = self._weight(value) if "norm" not in str(node.target) else None
            if weight is not None:
                found.weights[node.name, place] = weight
            return
        tensor = tensor_of(self._quantized, value)
        if tensor is not None:
            self._read_bias(found, node, before, place, tensor)
            return
        quantizer, factor, factor_name = None, None, ""
        if str(value.target) == _DEQUANTIZE:
            value = value.args[0]  # type: ignore[assignment]  # its quantize node
            assert str(value.target) == _QUANTIZE
            scale, zero_point, low, high = value.args[1:5]
            quantizer = Quantizer(value.name, float(scale), int(zero_point), int(low), int(high))  # type: ignore[arg-type]  # numbers
            value = value.args[0]  # type: ignore[assignment]  # its input
        if value.op == "call_module" and "smooth_quant" in str(value.target):
            factor, factor_name = self._factor(value), value.name
        if quantizer is not None or factor is not None:
            found.edges[node.name, place] = Edge(quantizer, factor, factor_name)

    def _weight(self, value: fx.Node) -> QuantizedWeight | None:
        """Return the weight of `values * scale - zero`, or None if it is not int8 or zero is not 0."""
        product, zero = value.args[:2]
        assert isinstance(product, fx.Node)
        values, scale = (tensor_of(self._quantized, each) for each in product.args[:2])
        shift = tensor_of(self._quantized, zero)
        if values is None or scale is None or values.dtype is not torch.int8:
            return None
        if shift is not None and bool(shift.any()):
            return None
        return QuantizedWeight(values.clone(), scale.float().clone())

    def _read_bias(
        self, found: Decisions, node: fx.Node, before: fx.Node, place: int, tensor: torch.Tensor
    ) -> None:
        if place != 2 or not _has_bias(node):
            return
        sources = operands(before)
        old = tensor_of(self._fixed, sources[2]) if len(sources) > 2 else None
        if old is None or not torch.equal(old.reshape(-1), tensor.reshape(-1)):
            found.biases[node.name] = tensor.reshape(-1).clone()

    def _factor(self, node: fx.Node) -> torch.Tensor:
        module: Any = self._quantized.get_submodule(str(node.target))
        factors: list[torch.Tensor] = [*module.parameters(), *module.buffers()]
        assert len(factors) == 1
        return factors[0].detach().float().clone()


def _has_bias(node: fx.Node) -> bool:
    return any(word in str(node.target) for word in ("aten.conv", "aten.linear"))

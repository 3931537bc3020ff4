"""Measurements → the report's rows, worst first."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torchport.quantization.measure import LayerMeasure, Measures
from torchport.records.quantization import LayerPlan, LayerReport, QuantizationPlan

# The times of each layer by its name, in floats and in its current precision.
Times = Mapping[str, tuple["float | None", "float | None"]]


def layer_reports(
    plan: QuantizationPlan, measures: Measures, times: Times | None = None
) -> tuple[LayerReport, ...]:
    """Return a row for each layer, sorted by its SQNR in isolation, worst first."""
    rows = [_row(layer, measures.layers[layer.name], (times or {}).get(layer.name)) for layer in plan.layers]
    return tuple(sorted(rows, key=lambda row: math.inf if row.sqnr_isolated is None else row.sqnr_isolated))


def _row(
    layer: LayerPlan, seen: LayerMeasure, times: tuple[float | None, float | None] | None
) -> LayerReport:
    measured = seen.isolated.count > 0
    return LayerReport(
        name=layer.name,
        op=layer.op,
        precision=layer.precision,
        reason=layer.reason,
        sqnr_isolated=seen.isolated.sqnr if measured else None,
        sqnr=seen.accumulated.sqnr if seen.accumulated.count else None,
        pcc=seen.accumulated.pcc if seen.accumulated.count else None,
        low=seen.low,
        high=seen.high,
        range_low=seen.range[0] if seen.range else None,
        range_high=seen.range[1] if seen.range else None,
        clipped=seen.clipped / seen.inputs if seen.inputs else None,
        seconds_float=times[0] if times else None,
        seconds=times[1] if times else None,
    )

"""Benchmarks generation on a target: times before and after compiling, and the accuracy of the logits."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from torchport import targets
from torchport.bringup.bench import BenchSettings, Measurement
from torchport.bringup.generation_run import Listener, check_generates
from torchport.bringup.machine import describe_machine, versions_for
from torchport.bringup.memory import held_memory
from torchport.compiler import compile
from torchport.compiler.emission import simulated_seconds
from torchport.compiler.generating_model import GeneratingModel
from torchport.compiler.timing import time_interleaved
from torchport.errors import SurveyError, one_line
from torchport.records import BenchRecord, GenerationSpeed, ProgramRecord
from torchport.verification import compare
from torchport.zoo.model import Model

_log = logging.getLogger(__name__)


def measure_generation(
    model: Model, *, target: str, options: Mapping[str, object] | None, settings: BenchSettings
) -> Measurement:
    """Generate with a model before and after compiling it, from the first sequence of its example inputs.

    Returns:
        The row. A model that fails for any reason gives a row with the error.
    """
    row = BenchRecord(
        model.name,
        target,
        "failed",
        batch=1,
        pcc_threshold=settings.pcc_threshold,
        versions=versions_for(target),
        machine=describe_machine(),
    )
    try:
        check_generates(model)
        return _measure(row, model, target, options, settings)
    except Exception as error:  # noqa: BLE001  # a model may raise anything; only its own row fails
        _log.debug("%s failed on %s", model.name, target, exc_info=True)
        return Measurement(replace(row, error=one_line(error)))


def _measure(
    row: BenchRecord,
    model: Model,
    target: str,
    options: Mapping[str, object] | None,
    settings: BenchSettings,
) -> Measurement:
    original: Any = model.module
    prompt = _prompt(model)
    wanted = {
        "max_new_tokens": settings.new_tokens,
        "min_new_tokens": settings.new_tokens,
        "do_sample": False,
        "num_beams": 1,
    }
    length = settings.new_tokens + (1 if original.config.is_encoder_decoder else 0)
    length = max(length + (prompt.shape[1] if prompt.dim() == 2 else 0), 2)
    before, start = held_memory(), time.perf_counter()
    compiled = compile(
        original, (prompt,), target=target, options=options, name=model.name, max_length=length
    )
    assert isinstance(compiled, GeneratingModel)  # `check_generates` has passed
    result = compiled.generate(prompt, return_dict_in_generate=True, output_logits=True, **wanted)
    first_run_time = time.perf_counter() - start
    after = held_memory()
    if not compiled.generation_programs:  # eager torch generated; build programs to report their coverage
        compiled.build_generation()
    step = min(compiled.generation_programs, key=_tokens_taken)
    compared = compare(
        {"logits": torch.stack(result.logits, 1)},
        {"logits": _forced_logits(original, prompt, result.sequences)},
    )
    speeds: tuple[list[GenerationSpeed], list[GenerationSpeed]] = ([], [])
    simulated = _is_simulated(compiled, target, options)  # its run time says nothing about the device
    timing = time_interleaved(
        _clock(original.generate, prompt, wanted, speeds[0]),
        (lambda: 0.0) if simulated else _clock(compiled.generate, prompt, wanted, speeds[1]),
        runs=settings.runs,
        warmup=settings.warmup,
        budget=settings.budget,
    )
    counted = speeds[1][-timing.runs :]
    rates = [speed.tokens_per_second for speed in counted if speed.tokens_per_second]
    good = compared.pcc >= row.pcc_threshold
    found = replace(
        row,
        status="ok" if good else "inaccurate",
        error="" if good else f"logits: the PCC is {compared.pcc:.6f}, below {row.pcc_threshold:g}",
        ops_before=step.coverage.ops_before,
        unique_before=step.coverage.unique_before,
        ops_remain=step.coverage.ops_remain,
        unique_remain=step.coverage.unique_remain,
        transfers=step.coverage.transfers,
        original_time=timing.first,
        compiled_time=None if simulated else timing.second,
        first_run_time=first_run_time,
        pcc=compared.pcc,
        max_absolute=compared.max_absolute,
        runs=timing.runs,
        simulated=simulated,
        fallbacks=compiled.fallbacks,
        first_token_time=None if simulated else statistics.median(each.first_token_time for each in counted),
        tokens_per_second=statistics.median(rates) if rates and not simulated else None,
        builds=len(compiled.generation_programs),
        memory=None if before is None or after is None else max(after - before, 0),
    )
    return Measurement(found, step.coverage)


def _is_simulated(compiled: GeneratingModel, target: str, options: Mapping[str, object] | None) -> bool:
    found = targets.find(target)
    chosen = found.make_options(options)
    programs = [program for call in compiled.generation.calls for program in call.built_programs]
    return any(simulated_seconds(program, found, chosen) is not None for program in programs)


def _prompt(model: Model) -> torch.Tensor:
    """Return the first sequence of the model's example inputs."""
    name = str(model.module.main_input_name)
    found = model.kwargs.get(name, model.args[0] if model.args else None)
    if not isinstance(found, torch.Tensor) or not found.numel():
        raise SurveyError(
            f"the example inputs have no {name}", where=model.name, remedy="provide them with --inputs"
        )
    return found[:1]


def _forced_logits(model: Any, prompt: torch.Tensor, sequences: torch.Tensor) -> torch.Tensor:
    """Return the original model's logits for given tokens (teacher forcing)."""
    with torch.no_grad():
        if model.config.is_encoder_decoder:
            given = {model.main_input_name: prompt, "decoder_input_ids": sequences[:, :-1]}
            return model(**given).logits.float()  # type: ignore[no-any-return]  # transformers is untyped
        return model(sequences[:, :-1]).logits[:, prompt.shape[1] - 1 :].float()  # type: ignore[no-any-return]  # as above


def _tokens_taken(record: ProgramRecord) -> int:
    """Return how many tokens a program takes, judging by its integer inputs; encoders rank highest.

    A program for any number of tokens ranks above a step's.
    """
    specs = [spec for spec in record.inputs.values() if spec.dtype == "int64"]
    whole = [1 << 31 if -1 in spec.shape else spec.elements for spec in specs]
    return sum(whole) if len(record.inputs) > 2 else 1 << 62


def _clock(
    generate: Callable[..., object],
    prompt: torch.Tensor,
    wanted: Mapping[str, Any],
    speeds: list[GenerationSpeed],
) -> Callable[[], float]:
    def clock() -> float:
        heard = Listener(None, None)
        start = time.perf_counter()
        generate(prompt, streamer=heard, **wanted)
        took = time.perf_counter() - start
        speeds.append(heard.speed)
        return took

    return clock

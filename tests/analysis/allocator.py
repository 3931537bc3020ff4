"""Measures the peak of live bytes on a real run with torch's own allocator."""

import gc

import torch
from torch.profiler import ProfilerActivity, profile


def real_peak(model, args, kwargs, backward):
    """Run a model on real tensors and return the peak of the memory that the run allocates."""
    _run(model, args, kwargs, backward)  # the first call allocates memory that is kept
    gc.collect()  # leftovers of an earlier test must not be freed during the measurement
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = _run(model, args, kwargs, backward)
        # Everything is freed while the profiler runs: frees that it misses would distort its next count.
        del kept
        model.zero_grad(set_to_none=True)
        gc.collect()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def _run(model, args, kwargs, backward):
    with torch.enable_grad() if backward else torch.inference_mode():
        result = model(*args, **kwargs)
        if backward:
            values = [result] if isinstance(result, torch.Tensor) else result.values()
            outputs = [value for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
            torch.autograd.backward(outputs, [torch.ones_like(output) for output in outputs])
    return result

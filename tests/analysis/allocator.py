"""What torch's own allocator shows on a real run: the most bytes that lived at a time."""

import gc

import torch
from torch.profiler import ProfilerActivity, profile


def real_peak(model, args, kwargs, backward):
    """Run a model for real and return the allocator's peak, of what the run allocates."""
    _run(model, args, kwargs, backward)  # the first call makes what stays
    gc.collect()  # what an earlier test left must not be given back meanwhile
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = _run(model, args, kwargs, backward)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    assert kept is not None
    model.zero_grad(set_to_none=True)
    return peak


def _run(model, args, kwargs, backward):
    model.zero_grad(set_to_none=True)
    with torch.enable_grad() if backward else torch.inference_mode():
        result = model(*args, **kwargs)
        if backward:
            output = result if isinstance(result, torch.Tensor) else result[0]
            output.backward(torch.ones_like(output))
    return result

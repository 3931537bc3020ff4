"""What torch's own allocator shows on a real run: the most bytes that lived at a time."""

import gc

import torch
from torch.profiler import ProfilerActivity, profile


def real_peak(model, args, kwargs, backward):
    """Run a model for real and return the allocator's peak, of what the run allocates."""
    _run(model, args, kwargs, backward)  # the first call makes what stays
    gc.collect()  # what an earlier test left must not be given back meanwhile
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = _run(model, args, kwargs, backward)
        # All is given back while torch looks on: what it has not seen go would confuse its next count.
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

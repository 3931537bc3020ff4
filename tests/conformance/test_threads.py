"""Eight threads call, read and change shared modules: no fake tensors, no hangs, no wrong results."""

import itertools
import threading

import pytest
import torch

import torchport
from shared_modules import SHARED, Shared, run_threads

CALLS = 40  # by each of seven calling threads, for each kind of module: more than a thousand in total


class Weights:
    """Lets one thread change weights while no call is running, since that would see half of each set."""

    def __init__(self, shared):
        self._shared = shared
        self._turn = threading.Condition()
        self._calls = 0

    def __enter__(self):
        with self._turn:
            self._calls += 1

    def __exit__(self, *_):
        with self._turn:
            self._calls -= 1
            self._turn.notify_all()

    def change(self, number):
        """Load one of the two sets of weights between calls; compilations continue meanwhile."""
        with self._turn:
            self._turn.wait_for(lambda: not self._calls, timeout=5)
            self._shared.module.load_state_dict(self._shared.states[number])


@pytest.mark.conformance
@pytest.mark.parametrize("on", ["host", "openvino"])
@pytest.mark.parametrize("kind", SHARED)
def test_shared_modules_with_weights_that_change(kind, on):
    shared = Shared(SHARED[kind], rows=range(1, 9))
    module, inputs = shared.module, shared.inputs
    compiled = [torchport.compile(module, (inputs[0],), target=on) for _ in range(3)]
    weights, numbers = Weights(shared), itertools.count()

    def call(run, is_guarded):
        def work():
            index = next(numbers) % len(inputs)
            with torch.no_grad():
                if not is_guarded:  # it may see half of each set: only the type is checked
                    result = run(inputs[index])
                    return "" if type(result) is torch.Tensor else f"a {type(result).__name__}"
                with weights:
                    return shared.problem(index, run(inputs[index]))

        return work

    def read_and_change():
        weights.change(next(numbers) % 2)
        held = [*module.state_dict().values(), *module.parameters()]
        return "" if {type(value) for value in held} <= {torch.Tensor, torch.nn.Parameter} else "a fake"

    works = [call(run, True) for run in (*compiled, *compiled, module)]
    assert run_threads([*works, read_and_change], CALLS) == []
    works = [call(run, False) for run in (*compiled, *compiled, module)]
    assert run_threads([*works, read_and_change], CALLS // 4) == []
    for number in (0, 1):
        module.load_state_dict(shared.states[number])
        for run in (*compiled, module):
            for index, x in enumerate(inputs):
                with torch.no_grad():
                    torch.testing.assert_close(run(x), shared.legal[index][number], rtol=1e-4, atol=1e-4)

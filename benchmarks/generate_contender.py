"""One contender of `generate.py`: loads the weights, builds, and then generates once per line of input.

It runs in the environment of the contender's library, so it imports only what its contender needs.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

# The result of a turn: when it began, when each token came, and the tokens.
Turn = tuple[list[float], list[int]]
Generate = Callable[[], Turn]


class Clock:
    """A streamer that records when tokens come; the library passes it the prompt first."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]
        self._is_prompt = True

    def put(self, value: object) -> None:
        """Note a token."""
        if not self._is_prompt:
            self.times.append(time.perf_counter())
        self._is_prompt = False

    def end(self) -> None:
        """Do nothing: the last token is already recorded."""


def held() -> int:
    """Return the process's own bytes, without file-backed pages, which the system can reclaim."""
    with open("/proc/self/status") as file:
        rows = [line.split() for line in file if line.startswith(("RssAnon", "RssShmem"))]
    return sum(int(row[1]) * 1024 for row in rows)


def prompt_of(length: int) -> Any:
    """Return the tokens that all contenders start from."""
    import torch

    torch.manual_seed(1)
    return torch.randint(3, 32000, (1, length))


def _load(folder: str) -> Any:
    from transformers import AutoModelForCausalLM

    return _endless(AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval())


def _endless(model: Any) -> Any:
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    return model


def _with_library(generate: Callable[..., Any], prompt: int, new: int, **settings: object) -> Generate:
    """Return a turn of a model with transformers' `generate`."""
    import torch

    ids = prompt_of(prompt)
    mask = torch.ones_like(ids)

    def turn() -> Turn:
        clock = Clock()
        found = generate(
            ids, attention_mask=mask, max_new_tokens=new, do_sample=False, streamer=clock, **settings
        )
        return clock.times, found[0, prompt:].tolist()

    return turn


def eager(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """transformers with its defaults."""
    return _with_library(_load(folder).generate, prompt, new)


def inductor(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """The library's static cache and a compiled forward, as transformers' documentation advises."""
    import torch

    model = _load(folder)
    model.forward = torch.compile(model.forward)
    return _with_library(model.generate, prompt, new, cache_implementation="static")


def torchport(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """torchport on OpenVINO, in the same process as the model."""
    import torchport as library

    model = _load(folder)
    compiled = library.compile(model, (prompt_of(prompt),), target="openvino", max_length=prompt + new)
    return _with_library(compiled.generate, prompt, new)


def torchport_float16(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """The same with products in float16, as the peers compute half-precision models on ARM."""
    import torchport as library

    model = _load(folder)
    compiled = library.compile(
        model, (prompt_of(prompt),), target="openvino", max_length=prompt + new,
        options={"precision": "float16"},
    )  # fmt: skip
    return _with_library(compiled.generate, prompt, new)


def torchport_small_pages(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """torchport on OpenVINO, as on a system without huge pages."""
    from torchport.targets import huge_pages

    huge_pages.huge_page_size = lambda: 0  # type: ignore[assignment]  # not cached, unlike the original
    return torchport(folder, dtype, prompt, new)


def torchport_auto(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """torchport with the engine that generates fastest, possibly eager torch."""
    import torchport as library

    model = _load(folder)
    compiled = library.compile(model, (prompt_of(prompt),), target="auto", max_length=prompt + new)
    return _with_library(compiled.generate, prompt, new)


def torchport_file(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """torchport from the file that `save` wrote, without the model."""
    import torchport as library

    return _with_library(_endless_file(library.load(f"{folder}/compiled.pt2")), prompt, new)


def _endless_file(loaded: Any) -> Callable[..., Any]:
    def generate(*args: Any, **settings: Any) -> Any:
        return loaded.generate(*args, eos_token_id=None, pad_token_id=0, **settings)

    return generate


def save(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """Write the file of `torchport_file`."""
    import torchport as library

    model = _load(folder)
    compiled = library.compile(model, (prompt_of(prompt),), target="openvino", max_length=prompt + new)
    turn = _with_library(compiled.generate, prompt, new)
    turn()
    library.save(compiled, f"{folder}/compiled.pt2")
    return turn


def _ov_settings(dtype: str) -> dict[str, str]:
    """Return OpenVINO's settings: float32 arithmetic for float32 models, the library's choice for others."""
    if dtype != "float32":
        return {}
    return {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}


def _export(folder: str, dtype: str) -> Any:
    from optimum.intel import OVModelForCausalLM

    model = OVModelForCausalLM.from_pretrained(
        folder, export=True, load_in_8bit=False, ov_config=_ov_settings(dtype)
    )
    return _endless(model)


def optimum_intel(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """optimum-intel's `OVModelForCausalLM`, exported here."""
    return _with_library(_export(folder, dtype).generate, prompt, new)


def openvino_genai(folder: str, dtype: str, prompt: int, new: int) -> Generate:
    """openvino-genai's pipeline on optimum-intel's export."""
    import openvino
    import openvino_genai as library

    _export(folder, dtype).save_pretrained(f"{folder}/exported")
    pipeline = library.LLMPipeline(f"{folder}/exported", "CPU", **_ov_settings(dtype))
    config = library.GenerationConfig()
    config.max_new_tokens, config.do_sample, config.ignore_eos = new, False, True
    ids = openvino.Tensor(prompt_of(prompt).numpy())

    class Streamer(library.StreamerBase):  # type: ignore[misc, name-defined]  # of a library not installed here
        def __init__(self) -> None:
            super().__init__()
            self.times = [time.perf_counter()]

        def write(self, token: object) -> object:
            self.times += [time.perf_counter()] * (len(token) if isinstance(token, list) else 1)
            return library.StreamingStatus.RUNNING

        def end(self) -> None:
            pass

    def turn() -> Turn:
        streamer = Streamer()
        found = pipeline.generate(ids, config, streamer)
        return streamer.times, list(found.tokens[0])

    return turn


# What each imports, so that libraries' memory does not count as the model's.
CONTENDERS: dict[str, tuple[Callable[[str, str, int, int], Generate], tuple[str, ...]]] = {
    "torchport": (torchport, ("torchport.compiler", "torchport.targets.openvino.build", "openvino")),
    "torchport-float16": (
        torchport_float16,
        ("torchport.compiler", "torchport.targets.openvino.build", "openvino"),
    ),
    "torchport-small-pages": (
        torchport_small_pages,
        ("torchport.compiler", "torchport.targets.openvino.build", "openvino"),
    ),
    "torchport-auto": (torchport_auto, ("torchport.compiler", "openvino")),
    "torchport-file": (torchport_file, ("torchport.packaging", "openvino")),
    "save": (save, ()),
    "eager": (eager, ()),
    "inductor": (inductor, ("torch._inductor.compile_fx",)),
    "optimum-intel": (optimum_intel, ("optimum.intel", "openvino")),
    "openvino-genai": (openvino_genai, ("optimum.intel", "openvino_genai")),
}


def _import_libraries(names: tuple[str, ...]) -> None:
    import importlib

    try:
        from torchport.zoo.torchvision_ops import ensure_torchvision_ops
    except ImportError:  # in the peers' environment, which has no torchvision
        pass
    else:
        ensure_torchvision_ops()
    import transformers.generation.utils
    import transformers.models.llama.modeling_llama  # noqa: F401  # so that no build's time includes it

    for name in names:
        importlib.import_module(name)


def main() -> None:
    """Build, report how long it took, and generate for each line of standard input."""
    name, folder, dtype = sys.argv[1:4]
    prompt, new = int(sys.argv[4]), int(sys.argv[5])
    say, sys.stdout = sys.stdout, sys.stderr
    prepare, libraries = CONTENDERS[name]
    _import_libraries(libraries)
    before, start = held(), time.perf_counter()
    turn = prepare(folder, dtype, prompt, new)
    turn()
    print(json.dumps({"build": time.perf_counter() - start}), file=say, flush=True)
    for _ in sys.stdin:
        times, tokens = turn()
        measured = {
            "first": times[1] - times[0],
            "rate": (len(times) - 2) / (times[-1] - times[1]),
            "seconds": times[-1] - times[0],
            "tokens": tokens,
            "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "held": held() - before,
        }
        print(json.dumps(measured), file=say, flush=True)


if __name__ == "__main__":
    main()

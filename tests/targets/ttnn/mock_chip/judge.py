"""Judges programs in the interpreter with the mock chip: prints a line of JSON for each.

    judge.py SRC KEYWORDS FOLDER…

KEYWORDS is JSON: the functions that programs may call, with their keywords. Normally these come from the
kernels, which need torch.

A folder holds `program.json` (the record) and `program.py` with its weights (the script). The library makes
each call of the record, and what it infers is compared with what the record expects. Then the script runs
unchanged. Nothing is computed: a mock chip returns zeros.
"""

import importlib.util
import inspect
import json
import os
import sys
import traceback
import types
from pathlib import Path


def import_without_torch(source):
    """Make the target's modules that do not need torch importable where it is not installed."""
    sys.path.insert(0, source)
    for name in ("torchport.targets", "torchport.targets.ttnn"):
        module = types.ModuleType(name)
        module.__path__ = [os.path.join(source, *name.split("."))]
        sys.modules[name] = module


def register_functions(keywords):
    """Fill the registry with functions without kernels: nothing is simulated here."""
    from torchport.targets.ttnn.functions import function

    for name, words in keywords.items():
        function(name, placeable=False, flops=None, keywords=words)(lambda: None)


def script_of(folder):
    """Import a script; it must not need torch."""
    spec = importlib.util.spec_from_file_location("emitted", folder / "program.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "torch" not in sys.modules
    return module


def judge(folder):
    """Return the library's verdict on a program."""
    import ttnn

    from torchport.targets.ttnn.execution import Execution
    from torchport.targets.ttnn.ttnn_program import L1_SMALL_BYTES, TtnnProgram

    program = TtnnProgram.from_json(json.loads((folder / "program.json").read_text()))
    script = script_of(folder)
    arrays = script.read()
    examples = [arrays[f"example_{place}"] for place in range(len(program.inputs))]
    names = list(inspect.signature(script.run).parameters)[2:]  # after the device and the weights
    given = dict(zip(names, examples, strict=True))
    device = ttnn.open_device(device_id=0, l1_small_size=L1_SMALL_BYTES)
    try:
        Execution(program, arrays, ttnn, device)([given[crossing.name] for crossing in program.inputs])
        outputs = script.run(device, script.load(device, arrays), *examples)
    finally:
        ttnn.close_device(device)
    return {
        "accepted": True,
        "calls": len(program.calls),
        "outputs": [[str(output.dtype), list(output.shape)] for output in outputs],
    }


def main():
    """Judge every folder."""
    import_without_torch(sys.argv[1])
    register_functions(json.loads(sys.argv[2]))
    for name in sys.argv[3:]:
        try:
            verdict = judge(Path(name))
        except Exception as error:  # noqa: BLE001  # any exception is the verdict
            text = f"{type(error).__name__}: {error}"
            verdict = {"accepted": False, "refusal": text[:1000], "traceback": traceback.format_exc()[-2000:]}
        sys.stdout.write(json.dumps({"folder": name, **verdict}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

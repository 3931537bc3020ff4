"""The child process in which a compiler runs: builds the island in a folder, and loads it once.

python -m torchport.targets.child FOLDER
"""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from torchport import targets
from torchport.errors import TorchportError, one_line
from torchport.records import parse_object
from torchport.targets.child_build import FAILURE, REQUEST
from torchport.targets.child_process import end_with_caller
from torchport.targets.island_files import read_island, write_artifact
from torchport.targets.target import OutOfRange


def main(folder: Path) -> int:
    """Build the island in a folder, and write the artefact, or the compiler's error, to that folder."""
    try:
        request: Mapping[str, Any] = parse_object((folder / REQUEST).read_bytes(), REQUEST)
        end_with_caller(None if request["keep"] else folder)
        target = targets.find(request["target"])
        options = target.make_options(request["options"])
        island = read_island(folder)
        inputs, outputs = island.inputs, island.outputs
        artifact = target.build(island, options)
        del island  # its weights are in the artefact now; graphs have reference cycles, so collect them
        gc.collect()
        # Many compilers do their work on loading; a crash then happens here and not in the caller.
        runner = target.load(artifact, inputs, outputs, options)
        if request["run"]:
            with suppress(OutOfRange):  # zeros may be out of range; the island ran anyway
                runner([torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in inputs])
    except Exception as error:  # noqa: BLE001  # a compiler may raise anything
        said = error if isinstance(error, TorchportError) else TorchportError(one_line(error))
        (folder / FAILURE).write_text(json.dumps(said.to_json(), indent=1))
        return 1
    if request["keep"]:
        for name, content in target.readable(artifact).items():
            (folder / name).write_bytes(content)
    write_artifact(artifact, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""The torch.compile backend that records ops: `torch.compile(model, backend="torchport_stat", options={…})`.

torch finds it through the entry-point group `torch_dynamo_backends`, so it needs no import. It records the
graphs of a running program, forward and backward, and runs them with eager torch.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import fx

import torchport.runtime.backend_names  # noqa: F401  # threads may look up this backend by name concurrently
from torchport.capture import AtenGraph, recording_backend
from torchport.errors import SurveyError, nearest
from torchport.records import SurveyRow, file_name, write_record
from torchport.survey.directory import RAW, ROWS, SurveyDirectory
from torchport.survey.stat.op_rows import rows_of
from torchport.survey.stat.raw_file import Row, write_raw_file
from torchport.survey.work_item import installed_versions

_OPTIONS = ("model", "output")
_programs: dict[tuple[Path, str], ProgramFiles] = {}
_lock = threading.Lock()


def stat_backend(
    graph_module: fx.GraphModule,
    example_inputs: Sequence[object],
    *,
    options: Mapping[str, object] | None = None,
    mode: str | None = None,
) -> Callable[..., object]:
    """Record one of Dynamo's graphs, and run it with eager torch.

    Args:
        graph_module: the graph.
        example_inputs: the inputs of its first call.
        options: `output`, the survey's directory (`stat` by default), and `model`, the name that the ops
            are recorded under (`program` by default). Graphs that a process records under one name belong to
            one model; they replace what an earlier process recorded under that name.
        mode: ignored; torch.compile's modes are inductor's.

    Returns:
        A function with the graph's inputs and outputs.

    Raises:
        SurveyError: there is no such option, or a survey is writing to the directory.
        RecordError: the file cannot be written.

    Example:
        >>> options = {"output": "stat", "model": "relu"}
        >>> compiled = torch.compile(torch.nn.ReLU(), backend=stat_backend, options=options)
        >>> compiled(torch.tensor([-1.0, 2.0]))  # and stat/raw/ has its op
        tensor([0., 2.])
    """
    given = dict(options or {})
    for key in given:
        if key not in _OPTIONS:
            raise SurveyError(
                f"the backend torchport_stat has no option {key!r}", remedy=nearest(key, _OPTIONS)
            )
    output = Path(str(given.get("output", "stat"))).absolute()
    name = str(given.get("model", "program"))
    with _lock:
        program = _programs.setdefault((output, name), ProgramFiles(name, SurveyDirectory(output)))
    return recording_backend(program.add)(graph_module, example_inputs)


class ProgramFiles:
    """The distinct graphs of a program so far, however often each runs or is recompiled.

    Args:
        name: the name that its ops are recorded under.
        directory: the directory that its files are written to.
    """

    def __init__(self, name: str, directory: SurveyDirectory) -> None:
        self._name = name
        self._directory = directory
        self._graphs: dict[str, list[list[Row]]] = {"fw": [], "bw": []}
        self._forwards: list[AtenGraph] = []
        self._lock = threading.Lock()

    def add(self, graph: AtenGraph) -> None:
        """Record a compiled graph, and rewrite the files with all graphs if it is new."""
        with self._lock:
            if graph.direction == "fw":
                self._forwards.append(graph)
            known = self._graphs[graph.direction]
            found = itertools.groupby(rows_of(self._name, [graph], self._forwards), lambda row: row["graph"])
            new = [rows for _, part in found if (rows := [row | {"graph": 0} for row in part]) not in known]
            if new:
                known.extend(new)
                self._write()

    def _write(self) -> None:
        raw = Path(file_name(self._name)).with_suffix(".parquet").name
        rows = [
            row | {"graph": number}
            for graphs in self._graphs.values()
            for number, rows in enumerate(graphs)
            for row in rows
        ]
        forward = sum(len(rows) for rows in self._graphs["fw"])
        row = SurveyRow(
            self._name,
            "ok",
            forward_ops=forward,
            backward_ops=len(rows) - forward if self._graphs["bw"] else None,
            graphs=sum(map(len, self._graphs.values())),
            raw=raw,
            settings={"backend": "torchport_stat"},
            versions=installed_versions(),
        )
        with self._directory.locked(shared=True):
            write_raw_file(rows, self._directory.path / RAW / raw)
            write_record(row, self._directory.path / ROWS / file_name(self._name))

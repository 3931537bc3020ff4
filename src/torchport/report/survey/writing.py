"""Writes the report of a survey as CSV files and plots, and removes stale files of an earlier report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

from torchport.errors import RecordError
from torchport.records import refuse_links, write_files
from torchport.report.survey.csv_files import (
    FOLDERS,
    count_file,
    group_sizes,
    plain_name,
    render_csv_files,
    size_folder,
)
from torchport.report.survey.histogram import draw_histogram
from torchport.report.survey.op_files import op_file_names
from torchport.report.survey.pictures import render_png, render_svg
from torchport.report.survey.records import DIRECTIONS, Survey

_ENDINGS = {".csv", ".png", ".svg"}


def write_survey_report(
    survey: Survey, directory: Path, *, plots: bool = True, plain_names: bool = False
) -> tuple[Path, ...]:
    """Write the ops that a survey's models use, as files in its directory.

    Writes `fw_node_count.csv`, `fw_total_input_size_dist/OP.csv`, `fw_total_output_size_dist/OP.csv` and
    `fw_total_arguments/OP.csv`, the same for `bw`, and a PNG and an SVG next to each distribution of sizes.
    If one file cannot be written, none is. Files of an earlier report that this one does not replace
    are removed.

    Args:
        survey: the survey that `read_survey` returned.
        directory: the directory to write to: the survey's own.
        plots: whether to draw plots; if not, those of an earlier report are removed.
        plain_names: whether to also write the files of forward graphs without `fw_`, such as
            `node_count.csv`, for tools that expect these names.

    Returns:
        The files that were written.

    Raises:
        RecordError: a file cannot be written or removed, or one of the folders is a link.
        ReportError: Pillow is not installed.

    Example:
        >>> write_survey_report(read_survey(Path("stat")), Path("stat"))
    """
    for folder in FOLDERS:  # before anything is drawn, written or removed
        refuse_links(directory, directory / folder / "any file")
    named = {name: text.encode() for name, text in render_csv_files(survey).items()}
    if plots:
        named |= _plots(survey)
    if plain_names:
        named |= {plain: content for name, content in named.items() if (plain := plain_name(name))}
    contents = {directory / name: content for name, content in named.items()}
    write_files(contents)
    _remove_stale(directory, contents)
    return tuple(contents)


def _plots(survey: Survey) -> dict[str, bytes]:
    names = op_file_names(op.op for op in survey.ops)
    pictures = {}
    for (direction, side, op), sizes in group_sizes(survey).items():
        drawing = draw_histogram(sizes)
        stem = f"{size_folder(direction, side)}/{names[op]}"
        pictures[f"{stem}.svg"] = render_svg(drawing).encode()
        pictures[f"{stem}.png"] = render_png(drawing)
    return pictures


def _remove_stale(directory: Path, written: Iterable[Path]) -> None:
    kept = set(written)
    stale = [directory / count_file(direction) for direction in DIRECTIONS]
    stale.append(directory / str(plain_name(count_file("fw"))))
    for folder in FOLDERS:
        stale += [path for path in (directory / folder).glob("*") if path.suffix in _ENDINGS]
    for path in stale:
        if path not in kept:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise RecordError(
                    f"belongs to an earlier report and cannot be removed: {error.strerror or error}",
                    where=str(path),
                ) from error
    for folder in FOLDERS:
        with contextlib.suppress(OSError):  # it is not empty, or does not exist
            (directory / folder).rmdir()

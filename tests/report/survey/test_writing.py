"""The files of a survey's report: their exact layout, all or none, and no leftovers."""

import itertools
import sys

import pytest

from torchport.errors import RecordError, ReportError
from torchport.report import read_survey, write_survey_report

from .surveys_at_hand import TENSOR, Op, convolution, relu, write_raw


def files_in(directory):
    return sorted(
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and path.parent.name != "raw"
    )


def report(directory, **options):
    return write_survey_report(read_survey(directory), directory, **options)


def test_the_table_of_a_convolutions_arguments(tmp_path):
    strides = ["[1, 1]"] * 5 + ["[14, 14]"] * 2 + ["[16, 16]"] * 2 + ["[2, 2]"]
    write_raw(tmp_path, "m", *[convolution(stride) for stride in strides])
    report(tmp_path, plots=False)
    assert (tmp_path / "fw_total_arguments" / "aten.convolution.default.csv").read_text() == (
        "arg0's appeared value,not_jsonable\n"
        "arg0's appeared value's count,10\n"
        "arg1's appeared value,not_jsonable\n"
        "arg1's appeared value's count,10\n"
        "arg2's appeared value,null\n"
        "arg2's appeared value's count,10\n"
        'arg3\'s appeared value,"[1, 1]","[14, 14]","[16, 16]","[2, 2]"\n'
        "arg3's appeared value's count,5,2,2,1\n"
        'arg4\'s appeared value,"[0, 0]"\n'
        "arg4's appeared value's count,10\n"
        'arg5\'s appeared value,"[1, 1]"\n'
        "arg5's appeared value's count,10\n"
        "arg6's appeared value,false\n"
        "arg6's appeared value's count,10\n"
        'arg7\'s appeared value,"[0, 0]"\n'
        "arg7's appeared value's count,10\n"
        "arg8's appeared value,1\n"
        "arg8's appeared value's count,10\n"
    )


def test_keywords_have_their_names(tmp_path):
    write_raw(tmp_path, "m", Op("aten.full.default", {"arg0": "[2]", "dtype": '"torch.float32"'}))
    report(tmp_path, plots=False)
    assert (tmp_path / "fw_total_arguments" / "aten.full.default.csv").read_text().splitlines()[2:] == [
        'dtype\'s appeared value,"""torch.float32"""',
        "dtype's appeared value's count,1",
    ]


def test_counts_and_sizes(tmp_path):
    write_raw(
        tmp_path,
        "m",
        relu(),
        relu("1x2"),
        relu(),
        convolution(),
        relu(input_bytes=None),
        relu(direction="bw"),
    )
    report(tmp_path, plots=False)
    assert (tmp_path / "fw_node_count.csv").read_text() == (
        "op,count\naten.relu.default,4\naten.convolution.default,1\n"
    )
    assert (tmp_path / "bw_node_count.csv").read_text() == "op,count\naten.relu.default,1\n"
    # 4*8*8 floats have 1,024 bytes, two floats have 8.
    inputs = (tmp_path / "fw_total_input_size_dist" / "aten.relu.default.csv").read_text()
    outputs = (tmp_path / "fw_total_output_size_dist" / "aten.relu.default.csv").read_text()
    assert inputs == "bytes,count\n8,1\n1024,2\nunknown,1\n"
    assert outputs == "bytes,count\n8,1\n1024,3\n"


def test_plots_stand_beside_the_distributions_of_sizes(tmp_path):
    write_raw(tmp_path, "m", relu(), relu(direction="bw"))
    written = report(tmp_path)
    assert files_in(tmp_path) == sorted(
        [f"{direction}_node_count.csv" for direction in ("fw", "bw")]
        + [f"{direction}_total_arguments/aten.relu.default.csv" for direction in ("fw", "bw")]
        + [
            f"{direction}_total_{side}_size_dist/aten.relu.default.{ending}"
            for direction, side, ending in itertools.product(
                ("fw", "bw"), ("input", "output"), ("csv", "png", "svg")
            )
        ]
    )
    assert sorted(str(path.relative_to(tmp_path)) for path in written) == files_in(tmp_path)


def test_the_same_raw_content_gives_the_same_bytes(tmp_path):
    ops = {"m1": [relu(), convolution()], "m2": [convolution("[2, 2]"), relu("2x2", direction="bw")]}
    for folder, names in (("one", "ab"), ("other", "ba")):
        for name, (model, some) in zip(names, ops.items(), strict=True):
            write_raw(tmp_path / folder, model, *some, name=f"{name}.parquet")
        report(tmp_path / folder)
    one, other = (
        {name: (tmp_path / folder / name).read_bytes() for name in files_in(tmp_path / folder)}
        for folder in ("one", "other")
    )
    assert len(one) == 2 + 3 * 7  # two count files; for each op and direction three tables and four plots
    assert one == other


def test_what_an_earlier_report_wrote_and_this_one_does_not_is_removed(tmp_path):
    first = write_raw(tmp_path, "m1", convolution(), relu(direction="bw"))
    write_raw(tmp_path, "m2", relu())
    report(tmp_path)
    notes = tmp_path / "fw_total_arguments" / "notes.txt"
    notes.write_text("mine")
    first.unlink()
    report(tmp_path, plots=False)
    assert files_in(tmp_path) == [
        "fw_node_count.csv",
        "fw_total_arguments/aten.relu.default.csv",
        "fw_total_arguments/notes.txt",
        "fw_total_input_size_dist/aten.relu.default.csv",
        "fw_total_output_size_dist/aten.relu.default.csv",
    ]
    assert not (tmp_path / "bw_total_arguments").exists()


def test_forward_files_have_plain_names_too_if_that_is_wanted(tmp_path):
    write_raw(tmp_path, "m", convolution(), relu(direction="bw"))
    report(tmp_path, plain_names=True)
    plain = [name for name in files_in(tmp_path) if not name.startswith(("fw_", "bw_"))]
    assert "node_count.csv" in plain
    assert "total_arguments/aten.convolution.default.csv" in plain
    assert "total_input_size_dist/aten.convolution.default.svg" in plain
    for name in plain:
        assert (tmp_path / name).read_bytes() == (tmp_path / f"fw_{name}").read_bytes()
    assert len(plain) == sum(name.startswith("fw_") for name in files_in(tmp_path))
    report(tmp_path)
    assert all(name.startswith(("fw_", "bw_")) for name in files_in(tmp_path))
    assert not (tmp_path / "total_arguments").exists()


def test_if_one_file_cannot_be_written_none_is(tmp_path):
    write_raw(tmp_path, "m", convolution(), relu())
    (tmp_path / "fw_total_output_size_dist" / "aten.relu.default.csv").mkdir(parents=True)
    with pytest.raises(RecordError, match=r"aten\.relu\.default\.csv: cannot be written"):
        report(tmp_path)
    assert files_in(tmp_path) == []


def test_odd_names_of_ops_become_names_of_files(tmp_path):
    odd = ["my lib::op/../x", "my lib::op-../x", "aten.add.Tensor", "aten.add.tensor", "a" * 300, ".hidden"]
    write_raw(tmp_path, "m", *[Op(op, {"arg0": TENSOR}) for op in odd])
    report(tmp_path, plots=False)
    names = [path.name for path in (tmp_path / "fw_total_arguments").iterdir()]
    assert len({name.lower() for name in names}) == len(odd)
    assert max(len(name) for name in names) < 200
    assert all(path.parts[0].startswith("fw_") for path in map(type(tmp_path), files_in(tmp_path)))


def test_without_pillow_it_says_what_to_do(tmp_path, monkeypatch):
    write_raw(tmp_path, "m", relu())
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ReportError, match="or skip plots with --no-plots"):
        report(tmp_path)
    assert files_in(tmp_path) == []
    report(tmp_path, plots=False)
    assert len(files_in(tmp_path)) == 4

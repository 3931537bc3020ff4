"""Aggregating a survey; expected values are counted by hand from the ops that the tests write."""

import sys

import duckdb
import pytest

from torchport.errors import ReportError
from torchport.report import read_survey
from torchport.report.survey.database import Limits
from torchport.report.survey.records import ArgumentCount, OpCount, SizeCount

from .surveys_at_hand import Op, bytes_of, convolution, relu, write_model, write_raw, write_row


@pytest.fixture
def stat(tmp_path):
    """Two ok models and one that failed."""
    directory = tmp_path / "stat"
    write_model(
        directory, "zoo:b",
        convolution(flops=100), relu(flops=5), convolution("[2, 2]", "1x3x4x4", flops=None),
        relu(direction="bw"), relu(direction="bw", graph=1),
        graphs=3,
    )  # fmt: skip
    write_model(directory, "zoo:a", convolution(flops=10), relu(), relu())
    write_row(directory, "zoo:c", None, status="timeout", error="ran past 60 s", graphs=0)
    return directory


def test_ops_are_counted_most_frequent_first_and_ties_by_name(stat):
    assert read_survey(stat).ops == (
        OpCount("fw", "aten.convolution.default", 3, models=2, flops=110),
        OpCount("fw", "aten.relu.default", 3, models=2, flops=5),
        OpCount("bw", "aten.relu.default", 2, models=1, flops=0),
    )


def test_sizes_are_the_sums_of_a_calls_tensors(stat):
    # The weight has 4*3 floats, 48 bytes; the image 3*8*8 or 3*4*4 floats.
    sizes = [size for size in read_survey(stat).sizes if "convolution" in size.op]
    assert sizes == [
        SizeCount("fw", "aten.convolution.default", "input", 48 + 192, 1),
        SizeCount("fw", "aten.convolution.default", "input", 48 + 768, 2),
        SizeCount("fw", "aten.convolution.default", "output", 256, 1),
        SizeCount("fw", "aten.convolution.default", "output", 1024, 2),
    ]


def test_arguments_stand_in_order_of_the_call_and_values_by_their_text(stat):
    found = [row for row in read_survey(stat).arguments if "convolution" in row.op]
    assert list(dict.fromkeys(row.name for row in found)) == [f"arg{i}" for i in range(9)]
    assert [row for row in found if row.name == "arg3"] == [
        ArgumentCount("fw", "aten.convolution.default", "arg3", "[1, 1]", 2),
        ArgumentCount("fw", "aten.convolution.default", "arg3", "[2, 2]", 1),
    ]


def test_the_tenth_argument_comes_after_the_second_and_keywords_come_last(tmp_path):
    names = ["arg10", "arg2", "memory_format", "dtype", "arg0"]
    write_raw(tmp_path, "m", Op("aten.odd.default", dict.fromkeys(names, "1")))
    assert [row.name for row in read_survey(tmp_path).arguments] == [
        "arg0", "arg2", "arg10", "dtype", "memory_format",
    ]  # fmt: skip


def test_models_stand_by_name_with_what_their_rows_and_raw_files_say(stat):
    a, b, c = read_survey(stat).models
    assert (a.model, a.status, a.forward_ops, a.forward_unique) == ("zoo:a", "ok", 3, 2)
    assert (a.backward_ops, a.backward_unique, a.flops, a.seconds, a.peak_bytes) == (
        None,
        None,
        10,
        1.5,
        2**20,
    )
    assert (b.forward_ops, b.forward_unique, b.backward_ops, b.backward_unique) == (3, 2, 2, 1)
    assert (b.graphs, b.flops) == (3, 105)
    assert (c.model, c.status, c.error, c.forward_ops) == ("zoo:c", "timeout", "ran past 60 s", None)
    assert [model.model for model in read_survey(stat).failed] == ["zoo:c"]


def test_raw_files_without_rows_all_count(tmp_path):
    write_raw(tmp_path, "m", relu(), relu(graph=1), relu(direction="bw"))
    [model] = read_survey(tmp_path).models
    assert (model.model, model.status, model.forward_ops, model.backward_ops) == ("m", "ok", 2, 1)
    assert (model.graphs, model.seconds) == (3, None)


def test_an_unknown_size_comes_last(tmp_path):
    write_raw(tmp_path, "m", relu(input_bytes=None), relu(), relu(input_bytes=None), relu(input_bytes=0))
    inputs = [(row.bytes, row.count) for row in read_survey(tmp_path).sizes if row.side == "input"]
    assert inputs == [(0, 1), (bytes_of("1x4x8x8"), 1), (None, 2)]


def test_threads_and_names_of_files_change_nothing(tmp_path):
    ops = [[relu(), convolution()], [convolution("[2, 2]")], [relu("1x1"), relu("2x2")]]
    one, other = tmp_path / "one", tmp_path / "other"
    for place, some in enumerate(ops):
        write_raw(one, f"m{place}", *some, name=f"{place}.parquet")
        write_raw(other, f"m{place}", *some, name=f"{9 - place}.parquet")
    assert read_survey(one, Limits(threads=1)) == read_survey(other, Limits(threads=2))


def test_a_truncated_file_affects_only_itself(stat):
    raw = write_raw(stat, "zoo:d", relu(), relu(), relu())
    write_row(stat, "zoo:d", raw, forward_ops=3)
    raw.write_bytes(raw.read_bytes()[:-20])
    survey = read_survey(stat)
    [problem] = survey.problems
    assert (problem.path, problem.detail) == (
        str(raw), "is cut off: delete it, and survey its model again",
    )  # fmt: skip
    assert [op.count for op in survey.ops] == [3, 3, 2]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("torchport.raw_ops/9", "is of the format 'torchport.raw_ops/9', not 'torchport.raw_ops/1'"),
        (None, "is not a raw file of a survey"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path, form, reason):
    write_raw(tmp_path, "good", relu())
    raw = write_raw(tmp_path, "bad", relu(), form=form)
    survey = read_survey(tmp_path)
    assert [(problem.path, problem.detail.split(": ")[0]) for problem in survey.problems] == [
        (str(raw), reason)
    ]
    assert [(op.op, op.count) for op in survey.ops] == [("aten.relu.default", 1)]


@pytest.mark.parametrize("first", [True, False])
def test_a_file_that_lacks_a_column_is_named(tmp_path, first):
    write_raw(tmp_path, "good", relu(), name="b.parquet")
    path = tmp_path / "raw" / ("a.parquet" if first else "c.parquet")
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * EXCLUDE (flops) FROM '{tmp_path}/raw/b.parquet') TO '{path}' "
            "(FORMAT parquet, KV_METADATA {format: 'torchport.raw_ops/1'})"
        )
    survey = read_survey(tmp_path)
    assert [problem.detail.split(":")[0] for problem in survey.problems] == ["lacks the column 'flops'"]
    assert [op.count for op in survey.ops] == [1]


@pytest.mark.parametrize(
    ("values", "column", "kind"),
    [
        ("true AS flops, true AS input_bytes", "input_bytes", "BOOLEAN"),
        ("'inf'::DOUBLE AS output_bytes", "output_bytes", "DOUBLE"),
        ("{'a': 1} AS model", "model", "STRUCT(a INTEGER)"),
        ("[{'bytes': true}] AS outputs", "outputs", "STRUCT(bytes BOOLEAN)[]"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_file_whose_columns_have_other_types_is_named_and_changes_nothing(
    tmp_path, first, values, column, kind
):
    write_raw(tmp_path, "good", *[convolution(flops=count) for count in (5, 7)], name="b.parquet")
    expected = read_survey(tmp_path)
    path = tmp_path / "raw" / ("a.parquet" if first else "c.parquet")
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT * REPLACE ({values}) FROM '{tmp_path}/raw/b.parquet') TO '{path}' "
            "(FORMAT parquet, KV_METADATA {format: 'torchport.raw_ops/1'})"
        )
    survey = read_survey(tmp_path)
    [problem] = survey.problems
    assert problem.path == str(path)
    assert problem.detail.startswith(f"has the column {column!r} as {kind}, not ")
    assert (survey.ops, survey.sizes) == (expected.ops, expected.sizes)
    assert sum(op.flops for op in survey.ops) == 12


def test_a_file_damaged_within_is_named(tmp_path):
    write_raw(tmp_path, "good", relu())
    raw = write_raw(tmp_path, "bad", *[relu(f"1x{size}") for size in range(1, 200)])
    content = bytearray(raw.read_bytes())
    content[4:-2000] = bytes(len(content) - 2004)  # the pages are overwritten, the footer is intact
    raw.write_bytes(content)
    survey = read_survey(tmp_path)
    [problem] = survey.problems
    assert problem.path == str(raw)
    assert problem.detail.startswith("is damaged (")
    assert "\n" not in problem.detail
    assert [op.count for op in survey.ops] == [1]


def test_a_footer_of_nonsense_is_named(tmp_path):
    write_raw(tmp_path, "good", relu())
    raw = tmp_path / "raw" / "bad.parquet"
    raw.write_bytes(b"PAR1" + bytes(range(100)) + b"\x40\0\0\0PAR1")
    survey = read_survey(tmp_path)
    assert [problem.path for problem in survey.problems] == [str(raw)]
    assert [op.count for op in survey.ops] == [1]


def test_a_raw_file_that_no_row_names_is_not_counted_and_named(stat):
    left = write_raw(stat, "zoo:killed", relu())
    survey = read_survey(stat)
    [problem] = survey.problems
    assert problem.path == str(left)
    assert problem.detail.startswith("no row of an ok model refers to it, so it is not counted")
    assert [op.count for op in survey.ops] == [3, 3, 2]


def test_a_row_whose_raw_file_is_gone_is_named(stat):
    gone = stat / "raw" / "gone.parquet"
    write_row(stat, "zoo:d", gone, forward_ops=3)
    assert [(problem.path, problem.detail.split(":")[0]) for problem in read_survey(stat).problems] == [
        (str(gone), "its row refers to it, but it is missing")
    ]


def test_a_row_and_a_raw_file_that_disagree_are_named(tmp_path):
    raw = write_model(tmp_path, "m", relu(), relu(), forward_ops=7)
    assert [(problem.path, problem.detail) for problem in read_survey(tmp_path).problems] == [
        (str(raw), "its row has 7 for forward ops, but the file has 2: survey the model again")
    ]


def test_a_row_that_is_cut_is_named(stat):
    path = stat / "rows" / "cut.json"
    path.write_text('{"schema":')
    assert [problem.path for problem in read_survey(stat).problems] == [str(path)]


def test_ops_of_a_third_direction_are_refused(tmp_path):
    write_raw(tmp_path, "m", relu(direction="../up"), name="m.parquet")
    with pytest.raises(ReportError, match=r"m\.parquet: holds ops of the direction '\.\./up'"):
        read_survey(tmp_path)


def test_a_survey_with_no_ok_model_says_why(tmp_path):
    write_row(tmp_path, "a", None, status="crashed", error="signal 11")
    write_row(tmp_path, "b", None, status="raised", error="no")
    with pytest.raises(ReportError, match="none of the survey's 2 models is ok; a: crashed: signal 11"):
        read_survey(tmp_path)


def test_no_survey_and_no_directory_are_refused(tmp_path):
    with pytest.raises(ReportError, match="holds no survey"):
        read_survey(tmp_path)
    with pytest.raises(ReportError, match="there is no such directory"):
        read_survey(tmp_path / "absent")


def test_a_directory_may_have_any_name(tmp_path):
    directory = tmp_path / "a[1] *?'\"model=x"
    made = write_raw(tmp_path / "plain", "m", relu())
    (directory / "raw").mkdir(parents=True)
    made.rename(directory / "raw" / made.name)
    assert [op.count for op in read_survey(directory).ops] == [1]


def test_nothing_is_left_of_an_aggregation(stat, tmp_path, monkeypatch):
    spill = tmp_path / "spill"
    spill.mkdir()
    monkeypatch.setenv("TMPDIR", str(spill))
    monkeypatch.setattr("tempfile.tempdir", None)
    read_survey(stat)
    assert list(spill.iterdir()) == []


def test_without_duckdb_it_says_what_to_install(stat, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ReportError, match=r"pip install 'torchport\[survey\]'"):
        read_survey(stat)


def test_rows_of_a_target_are_no_models_of_the_survey(stat):
    write_row(stat, "zoo:t", None, settings={"backend": '"openvino"'})
    write_row(stat, "zoo:s", write_raw(stat, "zoo:s", relu()), forward_ops=1, settings={"backend": '"stat"'})
    assert [model.model for model in read_survey(stat).models] == ["zoo:a", "zoo:b", "zoo:c", "zoo:s"]


def test_rows_of_a_target_are_not_a_survey(tmp_path):
    write_row(tmp_path, "m", None, settings={"backend": '"openvino"'})
    with pytest.raises(ReportError, match="holds no survey"):
        read_survey(tmp_path)

"""SQL queries: the tables, what is rejected, and what the results look like."""

import threading

import pytest

from torchport.errors import ReportError
from torchport.report import Limits, query_survey
from torchport.report.survey import query
from torchport.report.survey.answer import render_answer
from torchport.report.survey.views import NAMES

from .surveys_at_hand import convolution, relu, write_model, write_raw, write_row


@pytest.fixture
def stat(tmp_path):
    directory = tmp_path / "stat"
    write_model(directory, "a", convolution(flops=30, module_path="stem"), relu(flops=10), relu(flops=None))
    write_model(
        directory, "b", convolution(flops=50, module_path="head"), convolution("[2, 2]", flops=10),
        settings={"batch": "8"},
    )  # fmt: skip
    write_row(directory, "c", None, status="memory", error="ate it all")
    return directory


def rows(stat, sql):
    return list(query_survey(stat, sql).rows)


def test_ops(stat):
    assert rows(stat, "SELECT op, count(*) FROM ops GROUP BY op ORDER BY 1") == [
        ("aten.convolution.default", 3), ("aten.relu.default", 2),
    ]  # fmt: skip


def test_models(stat):
    sql = "SELECT model, status, error, forward_ops, settings->>'batch' FROM models ORDER BY model"
    assert rows(stat, sql) == [
        ("a", "ok", "", 3, None), ("b", "ok", "", 2, "8"), ("c", "memory", "ate it all", None, None),
    ]  # fmt: skip


def test_models_of_raw_files_without_rows(tmp_path):
    write_raw(tmp_path, "m", relu(), relu(graph=1))
    assert rows(tmp_path, "SELECT model, status, forward_ops, backward_ops, graphs FROM models") == [
        ("m", "ok", 2, None, 2)
    ]


def test_arguments_inputs_and_outputs(stat):
    assert rows(
        stat,
        "SELECT value, count(*) FROM arguments WHERE parameter = 'stride' GROUP BY value ORDER BY value",
    ) == [("[1, 1]", 2), ("[2, 2]", 1)]
    assert rows(stat, "SELECT shape, bytes FROM inputs WHERE model = 'a' AND node = 0 ORDER BY bytes") == [
        ("4x3x1x1", 48), ("1x3x8x8", 768),
    ]  # fmt: skip
    assert rows(stat, "SELECT DISTINCT dtype, shape FROM outputs WHERE op LIKE '%relu%'") == [
        ("float32", "1x4x8x8")
    ]


def test_op_counts(stat):
    assert rows(stat, "SELECT model, op, count, flops FROM op_counts ORDER BY model, op") == [
        ("a", "aten.convolution.default", 1, 30), ("a", "aten.relu.default", 2, 10),
        ("b", "aten.convolution.default", 2, 60),
    ]  # fmt: skip


def test_configurations(stat):
    found = rows(
        stat,
        "SELECT op, shapes, attributes, count, models, flops, flop_share, examples FROM configurations "
        "ORDER BY flops DESC, op",
    )
    rest = ["arg2=null", "stride=[1, 1]", "arg4=[0, 0]", "arg5=[1, 1]", "arg6=false", "arg7=[0, 0]", "arg8=1"]
    assert found[0] == (
        "aten.convolution.default", ["1x3x8x8", "4x3x1x1"], rest, 2, 2, 80, 0.8, ["a stem", "b head"],
    )  # fmt: skip
    assert [(row[0], row[3], row[5]) for row in found[1:]] == [
        ("aten.convolution.default", 1, 10), ("aten.relu.default", 2, 10),
    ]  # fmt: skip
    assert sum(row[6] for row in found) == pytest.approx(1)


def test_pivot_gives_a_column_for_each_op(stat):
    answer = query_survey(stat, "PIVOT op_counts ON op USING sum(count) GROUP BY model ORDER BY model")
    assert answer.columns == ("model", "aten.convolution.default", "aten.relu.default")
    assert list(answer.rows) == [("a", 1, 2), ("b", 2, None)]


@pytest.mark.parametrize("name", NAMES)
def test_every_table_can_be_described_and_read(stat, name):
    assert rows(stat, f"DESCRIBE {name}")
    assert rows(stat, f"SELECT count(*) FROM (FROM {name})")[0][0] > 0


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT opp FROM ops", 'column "opp" not found'),
        ("SELECT * FROM opps", 'Did you mean "ops"'),
        ("SELEC 1", "syntax error"),
        ("SELECT CAST(op AS INTEGER) FROM ops", "Could not convert"),
    ],
)
def test_wrong_sql_is_one_line_with_the_tables(stat, sql, message):
    with pytest.raises(ReportError, match="the SQL fails: ") as caught:
        query_survey(stat, sql)
    assert message in str(caught.value)
    assert "configurations" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TABLE x (a INTEGER)", "SELECT 1; SELECT 2", "DROP VIEW ops", "SET threads = 1", "",
        "-- nothing", "COPY (SELECT 1) TO '{raw}/x.csv'", "EXPORT DATABASE '{raw}/all'",
        "ATTACH '{raw}/x.db'", "INSTALL httpfs",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{raw}/x.csv'", "PIVOT ops ON op; DROP VIEW ops",
        "COPY FROM DATABASE memory TO temp",
    ],
)  # fmt: skip
def test_statements_other_than_queries_are_rejected(stat, sql):
    before = sorted((stat / "raw").iterdir())
    with pytest.raises(ReportError, match=r"is not a single query|the SQL fails"):
        query_survey(stat, sql.format(raw=stat / "raw"))
    assert sorted((stat / "raw").iterdir()) == before


@pytest.mark.parametrize("function", ["read_text", "read_csv", "read_parquet", "glob"])
def test_other_files_are_out_of_reach(stat, tmp_path, function):
    other = write_raw(tmp_path / "other", "x", relu())
    with pytest.raises(ReportError, match="Permission Error"):
        query_survey(stat, f"SELECT * FROM {function}('{other}')")


def test_variables_of_the_program_are_out_of_reach(stat):
    secret = [1, 2, 3]
    with pytest.raises(ReportError, match="secret"):
        query_survey(stat, "SELECT * FROM secret")
    assert secret


def test_no_progress_is_shown_and_memory_is_limited(stat):
    sql = "SELECT current_setting('enable_progress_bar'), current_setting('memory_limit')"
    assert rows(stat, sql) == [(False, "953.6 MiB")]


def test_too_many_rows_are_refused(stat, monkeypatch):
    monkeypatch.setattr(query, "MOST_ROWS", 4)
    assert len(rows(stat, "FROM ops LIMIT 4")) == 4
    with pytest.raises(ReportError, match="more than 4 rows"):
        query_survey(stat, "FROM ops")


def test_every_value_has_a_json_form(stat):
    answer = query_survey(
        stat,
        "SELECT 1 AS a, 2 AS a, 1.5::DECIMAL(9, 2) AS d, 'nan'::DOUBLE AS n, DATE '2020-01-02' AS day, "
        "{'x': [1]} AS s, sum(1::HUGEINT) AS h FROM range(3)",
    )
    assert answer.to_json() == [
        {"a": 1, "a_1": 2, "d": 1.5, "n": "nan", "day": "2020-01-02", "s": {"x": [1]}, "h": 3}
    ]


def test_damaged_files_are_left_out_of_the_answer(stat):
    raw = write_raw(stat, "bad", *[relu(f"1x{size}") for size in range(1, 200)])
    write_row(stat, "bad", raw)
    content = bytearray(raw.read_bytes())
    content[4:-2000] = bytes(len(content) - 2004)
    raw.write_bytes(content)
    answer = query_survey(stat, "SELECT count(*), max(op) FROM ops")
    assert answer.rows == ((5, "aten.relu.default"),)
    assert [problem.path for problem in answer.problems] == [str(raw)]


def test_the_table_aligns_with_numbers_right_aligned(stat):
    text = render_answer(
        query_survey(stat, "SELECT op, count FROM op_counts WHERE model = 'a' ORDER BY count")
    )
    assert text.splitlines() == [
        "| op                       | count |",
        "| ------------------------ | ----: |",
        "| aten.convolution.default |     1 |",
        "| aten.relu.default        |     2 |",
    ]


def test_an_answer_without_rows_is_its_head(stat):
    text = render_answer(query_survey(stat, "SELECT op FROM ops WHERE false"))
    assert text.splitlines()[0] == "| op  |"


def test_a_limit_of_more_seconds_than_can_be_waited(stat, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    assert query_survey(stat, "SELECT 1", Limits(seconds=1e300)).rows == ((1,),)
    assert not raised


def test_a_lone_surrogate_in_sql_is_refused(stat):
    with pytest.raises(ReportError, match="not valid Unicode"):
        query_survey(stat, "SELECT '\udc80'")


def test_sql_that_would_overflow_the_parsers_stack_is_refused(stat):
    with pytest.raises(ReportError, match=r"has 2,300,003 characters: write at most 50,000"):
        query_survey(stat, "(FROM (SELECT * FROM " * 100_000 + "ops" + "))" * 100_000)


@pytest.mark.timeout(60)
def test_thousands_of_columns_of_one_name(stat):
    columns = query_survey(stat, "SELECT " + ",".join("1" * 5000)).columns
    assert len(set(columns)) == 5000
    assert query_survey(stat, "SELECT 1 a, 2 a_1, 3 a, 4 a").columns == ("a", "a_1", "a_2", "a_3")

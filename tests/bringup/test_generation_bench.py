"""`run_benches` with models that generate: tokens, builds and memory in addition to times."""

from __future__ import annotations

from torchport.bringup import BenchSettings, run_benches
from torchport.report import Report, render_csv, render_markdown

SETTINGS = BenchSettings(runs=1, warmup=0, new_tokens=4)


def test_rows_have_tokens_per_second(tmp_path):
    models = ["hf-small-lm:gpt2", "hf-small-lm:t5", "hf-small:gpt2"]
    rows = run_benches(models, targets=["host"], directory=tmp_path, settings=SETTINGS)
    causal, after_encoder, base = rows
    for row in (causal, after_encoder):
        assert row.status == "ok", row.error
        assert row.pcc > 0.9999
        assert row.builds == (1 if row is causal else 2)  # an encoder, and a step
        assert row.ops_before > 50
        assert 0 < row.first_token_time < row.compiled_time
        assert row.tokens_per_second > 0
        assert row.fallbacks.fallbacks == 0
    assert base.status == "failed"
    assert "does not generate" in base.error
    assert "hf-small-lm:gpt2" in base.error
    table = render_markdown(Report(rows))
    for title in ("First Token (ms)", "Tokens a Second", "Builds", "Memory (MiB)"):
        assert title in table
    assert "tokens_per_second,builds,memory" in render_csv(Report(rows)).splitlines()[0]


def test_tables_without_generation_have_no_generation_columns(tmp_path):
    settings = BenchSettings(runs=1, warmup=0)
    rows = run_benches(["hf-small:gpt2"], targets=["host"], directory=tmp_path, settings=settings)
    assert rows[0].status == "ok", rows[0].error
    assert "Tokens a Second" not in render_markdown(Report(rows))


def test_a_simulators_run_time_is_not_reported_as_the_devices(tmp_path):
    settings = BenchSettings(runs=1, warmup=0, new_tokens=2)
    [row] = run_benches(["hf-small-lm:gpt2"], targets=["ttnn"], directory=tmp_path, settings=settings)
    assert row.status == "ok", row.error
    assert row.simulated
    assert (row.compiled_time, row.first_token_time, row.tokens_per_second) == (None, None, None)
    assert "ttnn (simulated)" in render_markdown(Report((row,)))
    assert "(estimate)" not in render_markdown(Report((row,)))

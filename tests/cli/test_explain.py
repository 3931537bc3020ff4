"""`torchport explain`."""

from torchport.records import Coverage


def test_a_model_that_is_covered_exits_with_0(command, models):
    ran = command("explain", f"{models}::load", "--target", "host")
    assert ran.code == 0
    assert f"{models}::load on host" in ran.out
    assert "Remain          0 (0 unique)" in ran.out
    assert "host supports all of it" in ran.out


def test_an_op_that_stays_on_the_host_is_a_finding_with_reason_and_place(command, models):
    ran = command("explain", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu")
    assert ran.code == 1
    assert "2 × aten.relu.default  kept_by_option" in ran.out
    assert "at encoder.1" in ran.out
    assert "at encoder.3" in ran.out
    assert "2 ops stay on the host" in ran.out


def test_json_lists_every_op_that_stays_on_the_host(command, models):
    ran = command(
        "explain", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu", "--json"
    )
    assert ran.code == 1
    coverage = Coverage.from_json(ran.json)
    assert [op.module_path for op in coverage.stayed] == ["encoder.1", "encoder.3"]
    assert {op.reason for op in coverage.stayed} == {"kept_by_option"}
    assert all(op.source for op in coverage.stayed)


def test_user_given_inputs(command, models):
    ran = command(
        "explain", f"{models}::load_without_inputs", "--inputs", f"{models}::inputs", "--target", "host"
    )
    assert ran.code == 0, ran.err


def test_a_module_path_is_not_wrapped_in_a_narrow_terminal(command, models):
    line = ("explain", f"{models}::load", "--target", "host", "--option", "keep_ops=aten.relu")
    assert "at encoder.1\n" in command(*line, width=30).out


def test_errors_suggest_the_nearest_name(command, models):
    for line, message in [
        (["explain", f"{models}::laod"], "did you mean 'load'"),
        (["explain", "torchvsion:resnet18"], "did you mean 'torchvision'"),
        (["explain", "torchvision:resnet19", "--no-weights"], "resnet18"),
        (["explain", f"{models}::load", "--target", "opnvino"], "did you mean 'openvino'"),
        (["explain", f"{models}::load", "--option", "precison=bfloat16"], "did you mean 'precision'"),
    ]:
        ran = command(*line)
        assert (ran.code, ran.out) == (2, "")
        assert message in ran.err
        assert ran.err.count("\n") == 1


def test_a_model_that_raises_is_named_with_its_line(command, models):
    ran = command("explain", f"{models}::load_broken", "--target", "host")
    assert ran.code == 2
    assert "ValueError: three is odd" in ran.err
    assert "models.py:" in ran.err
    assert "Traceback" not in ran.err


def test_the_graphs_used_for_generation_are_explained(command):
    ran = command(
        "explain",
        "hf-small-lm:gpt2",
        "--no-weights",
        "--generate",
        "--max-length",
        "16",
        "--target",
        "openvino",
    )
    assert ran.code == 0, ran.err
    assert "(prompt) on openvino" in ran.out
    assert "(step) on openvino" in ran.out
    refused = command("explain", "hf-small-lm:gpt2", "--max-length", "16")
    assert refused.code == 2
    assert "--max-length requires --generate" in refused.err


WHISPER = """
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

def load():
    config = WhisperConfig(
        vocab_size=97, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, num_mel_bins=4,
        max_source_positions=8, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config).eval()

def sounds():
    return {"input_features": torch.zeros(1, 4, 16)}
"""


def test_an_audio_encoder_gets_the_models_own_inputs(command, tmp_path):
    (tmp_path / "whisper.py").write_text(WHISPER)
    line = [
        "explain", f"{tmp_path}/whisper.py::load", "--inputs", f"{tmp_path}/whisper.py::sounds",
        "--generate", "--max-length", "16", "--target", "openvino",
    ]  # fmt: skip
    ran = command(*line)
    assert ran.code in (0, 1), ran.err
    assert "(encoder) on openvino" in ran.out
    assert "(step) on openvino" in ran.out

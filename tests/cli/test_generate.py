"""`torchport generate`."""

import pytest

from torchport.records import GenerationRun

FILE = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


def load():
    torch.manual_seed(0)
    sizes = dict(vocab_size=97, hidden_size=32, intermediate_size=48)
    layers = dict(num_hidden_layers=1, num_attention_heads=2, eos_token_id=None)
    model = LlamaForCausalLM(LlamaConfig(**sizes, **layers)).eval()
    model.generation_config.num_beams = 2  # as summarization models have; greedy decoding needs 1
    return model, (torch.ones(1, 3, dtype=torch.long),)


def load_other():
    return torch.nn.ReLU(), (torch.ones(2),)
"""


@pytest.fixture
def language_model(tmp_path):
    path = tmp_path / "language_model.py"
    path.write_text(FILE)
    return path


def test_tokens_are_printed_and_equal_eager_torchs(command, language_model):
    ran = command(
        "generate", f"{language_model}::load", "--prompt", "5 17 3", "--target", "host",
        "--max-new-tokens", "6", "--compare", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    run = GenerationRun.from_json(ran.json)
    assert run.prompt == (5, 17, 3)
    assert len(run.tokens) == run.same_tokens == 6
    assert run.builds == 1
    assert run.max_length == 9
    assert run.speed.first_token_time > 0
    assert run.original is not None


def test_token_ids_are_streamed(command, language_model):
    ran = command(
        "generate", f"{language_model}::load", "--prompt", "5", "--target", "host", "--max-new-tokens", "3"
    )
    assert ran.code == 0, ran.err
    first = ran.out.splitlines()[0].split()
    assert len(first) == 3
    assert all(number.isdigit() for number in first)
    assert "tokens/second" in ran.out


@pytest.mark.parametrize(
    ("function", "prompt", "message"),
    [
        ("load", "Once upon", "has no tokenizer"),
        ("load", "500", "has the token id 500, but the model has only 97"),
        ("load", "", "the prompt is empty"),
        ("load_other", "5", "the model does not generate"),
    ],
)
def test_errors_are_one_line(command, language_model, function, prompt, message):
    ran = command("generate", f"{language_model}::{function}", "--prompt", prompt, "--target", "host")
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1


def test_a_file_is_written_and_generates_without_the_model(command, language_model, tmp_path):
    file = tmp_path / "model.pt2"
    options = ("--prompt", "5 17 3", "--max-new-tokens", "6", "--json")
    wrote = command(
        "generate",
        f"{language_model}::load",
        "--target",
        "host",
        "--max-length",
        "40",
        "-o",
        str(file),
        *options,
    )
    assert wrote.code == 0, wrote.err
    language_model.unlink()
    ran = command("generate", str(file), *options)
    assert ran.code == 0, ran.err
    run = GenerationRun.from_json(ran.json)
    assert run.tokens == GenerationRun.from_json(wrote.json).tokens
    assert (run.target, run.builds, run.max_length) == ("host", 0, 40)
    longer = command("generate", str(file), "--prompt", " ".join(["4"] * 35), "--max-new-tokens", "5")
    assert longer.code == 0, longer.err
    beyond = command("generate", str(file), "--prompt", " ".join(["4"] * 39), "--max-new-tokens", "5")
    assert beyond.code == 2
    assert "compiled for 40 at most" in beyond.err
    for option in (["--target", "host"], ["--output", "other.pt2"], ["--no-weights"], ["--max-length", "9"]):
        chosen = command("generate", str(file), "--prompt", "5", *option)
        assert chosen.code == 2
        assert f"{option[0]} applies only to a model" in chosen.err


def test_inspect_and_run_describe_a_file_that_generates(command, language_model, tmp_path):
    file = tmp_path / "model.pt2"
    wrote = command(
        "generate", f"{language_model}::load", "--prompt", "5", "--target", "host",
        "--max-length", "40", "--max-new-tokens", "2", "-o", str(file),
    )  # fmt: skip
    assert wrote.code == 0, wrote.err
    shown = command("inspect", str(file))
    # One layer, 2 heads of 16, keys and values, 40 slots of 4 bytes.
    assert "up to 40 tokens, prompts in chunks of 32, KV cache of 10.0 KiB per sequence" in " ".join(
        shown.out.split()
    )
    assert command("inspect", str(file), "--json").json["generation"]["max_length"] == 40
    ran = command("run", str(file), "--json")
    assert ran.code == 0, ran.err
    assert ran.json["outputs"][0]["shape"] == [1, 97]


def test_a_file_with_only_a_forward_does_not_generate(command, language_model, tmp_path):
    file = tmp_path / "relu.pt2"
    wrote = command("compile", f"{language_model}::load_other", "--target", "host", "-o", str(file))
    assert wrote.code == 0, wrote.err
    ran = command("generate", str(file), "--prompt", "5")
    assert ran.code == 2
    assert "not what generate needs" in ran.err


def test_analyze_shows_the_cost_of_generation(command, language_model):
    ran = command("analyze", f"{language_model}::load", "--generate", "--length", "64", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["cache_bytes"] == 64 * 2 * 2 * 16 * 4  # tokens, keys and values, heads, width, bytes
    shown = command(
        "analyze", f"{language_model}::load", "--generate", "--length", "64", "--peak-flops", "1e12",
        "--bandwidth", "1e9",
    )  # fmt: skip
    assert "prompt of 64 tokens" in shown.out
    assert "by memory" in shown.out
    assert "16.0 KiB (float32)" in shown.out


def test_bench_generates(command, language_model, tmp_path):
    ran = command(
        "bench", f"{language_model}::load", "--generate", "--max-new-tokens", "4", "--runs", "1",
        "--warmup", "0", "--target", "host", "-o", str(tmp_path / "out"),
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert "Tokens a Second" in ran.out

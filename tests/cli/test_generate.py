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
    return LlamaForCausalLM(LlamaConfig(**sizes, **layers)).eval(), (torch.ones(1, 3, dtype=torch.long),)


def load_other():
    return torch.nn.ReLU(), (torch.ones(2),)
"""


@pytest.fixture
def language_model(tmp_path):
    path = tmp_path / "language_model.py"
    path.write_text(FILE)
    return path


def test_tokens_come_and_equal_those_of_the_model(command, language_model):
    ran = command(
        "generate", f"{language_model}::load", "--prompt", "5 17 3", "--target", "host",
        "--max-new-tokens", "6", "--compare", "--json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    run = GenerationRun.from_json(ran.json)
    assert run.prompt == (5, 17, 3)
    assert len(run.tokens) == run.same_tokens == 6
    assert run.builds == 2
    assert run.max_length == 9
    assert run.speed.first_token_time > 0
    assert run.original is not None


def test_numbers_of_tokens_are_shown_as_they_come(command, language_model):
    ran = command(
        "generate", f"{language_model}::load", "--prompt", "5", "--target", "host", "--max-new-tokens", "3"
    )
    assert ran.code == 0, ran.err
    first = ran.out.splitlines()[0].split()
    assert len(first) == 3
    assert all(number.isdigit() for number in first)
    assert "tokens a second" in ran.out


@pytest.mark.parametrize(
    ("function", "prompt", "message"),
    [
        ("load", "Once upon", "has no tokenizer"),
        ("load", "500", "names the token 500, and the model has 97"),
        ("load", "", "the prompt is empty"),
        ("load_other", "5", "this one does not"),
    ],
)
def test_what_cannot_be_generated_is_one_line(command, language_model, function, prompt, message):
    ran = command("generate", f"{language_model}::{function}", "--prompt", prompt, "--target", "host")
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) == 1

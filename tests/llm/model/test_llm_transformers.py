"""From a checkpoint written by `transformers`, `tempo_llm` generates the same token ids as `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

PROMPTS = [[1, 17, 5, 40, 8, 61, 3], [1, 2], [9, 9, 30, 11]]
NEW_TOKENS = 12


def save_model(directory: Path, **settings: Any) -> Any:
    """A small random Llama of `transformers`, saved to `directory`."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": 300,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 256,
            "initializer_range": 0.3,  # the usual 0.02 gives logits too close to each other
            **settings,
        }
    )
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(directory)
    return model


def greedy(model: Any, prompt: list[int]) -> list[int]:
    """The tokens that `transformers` generates after `prompt`, without stopping at end tokens."""
    import torch

    model.generation_config.eos_token_id = None
    ids = torch.tensor([prompt])
    tokens = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW_TOKENS, do_sample=False, pad_token_id=0)
    return tokens[0, len(prompt) :].tolist()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "llama3"])
def test_same_tokens(tmp_path: Path, llama3_scaling: dict[str, Any], tied: bool, scaled: bool) -> None:
    from tempo_llm import Generator

    settings: dict[str, Any] = {"tie_word_embeddings": tied}
    if scaled:
        settings |= {"rope_scaling": llama3_scaling, "head_dim": 16}
    model = save_model(tmp_path, **settings)
    result = Generator.from_directory(tmp_path).generate(PROMPTS, NEW_TOKENS, max_context=24)
    assert [list(c.token_ids) for c in result.completions] == [greedy(model, prompt) for prompt in PROMPTS]


def test_same_tokens_from_the_command_line(tmp_path: Path, write_tokenizer: Any) -> None:
    from tempo_llm.cli import app

    model = save_model(tmp_path)
    write_tokenizer(tmp_path)
    command = ["generate", "--model", str(tmp_path), "--prompt", "the quick brown fox", "--max-new-tokens", str(NEW_TOKENS)]
    result = CliRunner().invoke(app, [*command, "--temperature", "0", "--raw", "--ignore-eos", "--json"])
    assert result.exit_code == 0, result.output
    (completion,) = json.loads(result.stdout)["completions"]
    assert completion["token_ids"] == greedy(model, completion["prompt_token_ids"])


def test_the_oracle_agrees(tmp_path: Path) -> None:
    """The NumPy model of the other tests is right: it gives the tokens of `transformers`."""
    from tempo_llm.tensor_file import TensorFile
    from tests.llm import oracle

    model = save_model(tmp_path)
    values = {**json.loads((tmp_path / "config.json").read_text()), "rope_theta": 10000.0}
    file = TensorFile(tmp_path / "model.safetensors")
    tensors = {name: file.read(name) for name in file.names}
    assert oracle.greedy(values, tensors, PROMPTS[0], NEW_TOKENS) == greedy(model, PROMPTS[0])

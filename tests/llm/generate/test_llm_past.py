"""What was computed of a prompt is taken by prompts that begin in the same way, and gives bit for bit what a cold run gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tempo_llm import Attention, Generator, LlamaConfig, load_weights
from tempo_llm.prefixes import Prefixes
from tempo_llm.requests import Request
from tests.cases import fast
from tests.llm import oracle
from tests.llm.model.test_llm_families import model

PATTERNS = ["full", "window=20", "window=20+sink=2", "0:full,1-:window=24", "block=24", "dilated=2", "dilated=3+window=8"]
BLOCK = 16


def branches(random: np.random.Generator, count: int, vocabulary: int) -> list[list[int]]:
    """Prompts, most of which go on from the first tokens of one before."""
    prompts = [random.integers(3, vocabulary, 40).tolist()]
    while len(prompts) < count:
        before = prompts[random.integers(len(prompts))]
        kept = before[: random.integers(len(before) + 1)]
        prompts.append([*kept, *random.integers(3, vocabulary, random.integers(1, 64 - len(kept))).tolist()][:63])
    return prompts


def run(generator: Generator, prompts: list[list[int]], prefixes: Prefixes) -> tuple[Any, int]:
    """Tokens and logprobs, and how many tokens of the prompts were known."""
    decoding = generator.start(Request(prompts, 3, logprobs=2), prefixes)
    known = decoding._prepared.bounds[decoding._prepared.decoder.past] - 1
    decoding.finish()
    return [(each.token_ids, each.logprobs) for each in decoding.generation().completions], BLOCK * known


@pytest.mark.parametrize("pattern", fast(PATTERNS, "window=20+sink=2"))
def test_prompts_go_on_from_what_is_known(pattern: str, values: Any, random_tensors: Any, write_model: Any) -> None:
    values |= {"num_hidden_layers": 2, "max_position_embeddings": 128}
    tensors = random_tensors(values)
    generator = Generator.from_directory(write_model(values, tensors), Attention.parse(pattern))
    check(generator, values["vocab_size"], least=2)


@pytest.mark.slow
def test_a_state_is_kept_too(write_model: Any) -> None:
    values, tensors, directory = model("qwen3_5_text", write_model)
    generator = Generator.from_directory(directory)
    check(generator, values["vocab_size"], least=1)
    first = list(range(3, 37))
    prefixes = Prefixes(2**30)
    run(generator, [first], prefixes)
    result, known = run(generator, [[*first, 5, 9]], prefixes)
    assert known == 32 and list(result[0][0]) == oracle.greedy(values, tensors, [*first, 5, 9], 3)


def check(generator: Generator, vocabulary: int, least: int) -> None:
    """Random branches, warm and cold; at least so many find something known."""
    random, prefixes, found = np.random.default_rng(5), Prefixes(2**30), 0
    prompts = branches(random, 10, vocabulary)
    for prompt in [*prompts, prompts[-1]]:
        warm, known = run(generator, [prompt], prefixes)
        cold, nothing = run(generator, [prompt], Prefixes(0))
        assert warm == cold and nothing == 0 and known < len(prompt)
        found += known > 0
    assert found >= least


def test_rows_that_begin_in_the_same_way(values: Any, random_tensors: Any, write_model: Any) -> None:
    values |= {"num_hidden_layers": 2, "max_position_embeddings": 128}
    generator = Generator.from_directory(write_model(values, random_tensors(values)))
    first, prefixes = list(range(3, 43)), Prefixes(2**30)
    run(generator, [first], prefixes)
    rows = [[*first[:35], 7, 8], [*first[:38], 50], first]
    warm, known = run(generator, rows, prefixes)
    cold, _ = run(generator, rows, Prefixes(0))
    assert warm == cold and known == 32
    assert run(generator, [*rows, [1, 2, 3, *first[3:]]], prefixes)[1] == 0


@pytest.mark.slow
def test_prefixes_of_another_process(tmp_path: Path, values: Any, random_tensors: Any, write_model: Any) -> None:
    """A directory keeps them; other weights are another model."""
    values |= {"num_hidden_layers": 1, "max_position_embeddings": 128}
    directory = write_model(values, random_tensors(values))
    config = LlamaConfig.from_directory(directory)
    weights, prompt = load_weights(directory, config), list(range(3, 43))

    def known(weights: dict[str, np.ndarray], pattern: str = "full") -> int:
        generator = Generator(config, weights, Attention.parse(pattern))
        result, known = run(generator, [prompt], Prefixes(2**30, tmp_path / "kept", generator.digest))
        assert result == run(generator, [prompt], Prefixes(0))[0]
        return known

    assert [known(weights), known(weights), known(weights, "window=30")] == [0, 32, 0]
    assert known({**weights, "final_norm.weight": weights["final_norm.weight"] + np.float32(1e-3)}) == 0

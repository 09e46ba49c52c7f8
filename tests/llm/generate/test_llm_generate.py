"""Generation against a plain NumPy Llama: the same tokens, for every kind of model and prompt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tempo_llm import Generator, LlamaConfig, load_weights
from tempo_llm.errors import RequestError
from tests.cases import first
from tests.llm import oracle

CONTEXT = 24  # the number of positions to compute: small, so that tests are fast
PROMPTS = [[1, 17, 5, 40, 8, 61, 3], [1], [9, 9, 30]]


@pytest.fixture
def make_generator(random_tensors: Any, write_model: Any) -> Any:
    """`make_generator(values, tied=False, **options)`: a generator and its tensors."""

    def make(values: dict[str, Any], tied: bool = False, **options: Any) -> tuple[Generator, dict[str, np.ndarray]]:
        tensors = random_tensors(values, tied=tied)
        return Generator.from_directory(write_model(values, tensors), **options), tensors

    return make


@pytest.mark.parametrize(
    ("change", "tied"),
    first(
        1,
        [
            ({}, False),
            ({"num_key_value_heads": 1}, True),
            ({"num_key_value_heads": 4, "num_hidden_layers": 1}, False),
            ({"attention_bias": True, "mlp_bias": True}, False),
            ({"rope_scaling": {"rope_type": "linear", "factor": 4.0}}, False),
            ({"rope_scaling": "llama3"}, True),
        ],
    ),
    ids=["grouped", "one-kv-head-tied", "one-layer", "biases", "linear-rope", "llama3-rope-tied"],
)
def test_greedy_tokens_are_the_oracles(
    values: dict[str, Any], llama3_scaling: dict[str, Any], make_generator: Any, change: dict[str, Any], tied: bool
) -> None:
    values |= change
    if values.get("rope_scaling") == "llama3":
        values["rope_scaling"] = llama3_scaling
    backend = "numpy" if change else "jax"  # which compiles for longer
    generator, tensors = make_generator(values, tied, backend=backend)
    result = generator.generate(PROMPTS, 12, max_context=CONTEXT)
    assert result.length == len(PROMPTS[0]) + 12 and result.capacity == 128
    for prompt, completion in zip(PROMPTS, result.completions, strict=True):
        assert list(completion.token_ids) == oracle.greedy(values, tensors, prompt, 12)
        assert completion.prompt_ids == tuple(prompt) and completion.finish_reason == "length"


def test_one_prompt_and_interpreted(values: dict[str, Any], make_generator: Any) -> None:
    generator, tensors = make_generator(values, executor="interpreted")
    result = generator.generate(PROMPTS[:1], 4, max_context=12)
    assert list(result.completions[0].token_ids) == oracle.greedy(values, tensors, PROMPTS[0], 4)


def test_rows_on_two_devices(values: dict[str, Any], make_generator: Any) -> None:
    generator, tensors = make_generator({**values, "num_hidden_layers": 1}, devices=2)
    result = generator.generate(PROMPTS[:2], 4, max_context=12)
    for prompt, completion in zip(PROMPTS, result.completions, strict=False):
        assert list(completion.token_ids) == oracle.greedy({**values, "num_hidden_layers": 1}, tensors, prompt, 4)
    alone = generator.generate(PROMPTS[:1], 4, max_context=12)  # the places of its blocks are divided
    assert alone.completions[0].token_ids == result.completions[0].token_ids


@pytest.mark.slow
def test_prompts_of_a_range_of_lengths_share_one_program(
    fresh_programs: None, values: dict[str, Any], make_generator: Any
) -> None:
    generator, tensors = make_generator(values)
    first = generator.generate([[4, 8]], 5)
    second = generator.generate([[7] * 9 + [1]], 8)
    assert (first.length, second.length) == (7, 18) and first.capacity == second.capacity == 128
    assert first.compiles > 0 and second.compiles == 0
    assert list(second.completions[0].token_ids) == oracle.greedy(values, tensors, [7] * 9 + [1], 8)


def test_text_ends_after_a_stop_token(values: dict[str, Any], make_generator: Any) -> None:
    generator, tensors = make_generator(values)
    tokens = oracle.greedy(values, tensors, PROMPTS[0], 12)
    stop = tokens[4]
    completion = generator.generate(PROMPTS[:1], 12, stop_ids=[stop, 95], max_context=CONTEXT).completions[0]
    assert list(completion.token_ids) == tokens[: tokens.index(stop) + 1]
    assert completion.finish_reason == "stop"


@pytest.mark.slow
def test_draws_follow_the_seed(values: dict[str, Any], make_generator: Any) -> None:
    generator, tensors = make_generator(values)

    def draw(temperature: float, seed: int) -> list[tuple[int, ...]]:
        result = generator.generate(PROMPTS[1:], 12, temperature=temperature, seed=seed, max_context=CONTEXT)
        return [completion.token_ids for completion in result.completions]

    assert draw(5.0, 1) == draw(5.0, 1)
    assert draw(5.0, 1) != draw(5.0, 2)
    assert draw(1e-4, 1) == [tuple(oracle.greedy(values, tensors, prompt, 12)) for prompt in PROMPTS[1:]]


@pytest.mark.parametrize(
    ("prompts", "arguments", "message"),
    [
        ([], {}, "there is no prompt"),
        ([[1], []], {}, "prompt 1 has no tokens"),
        ([[1, 96]], {}, "prompt 0 has token 96, but the model knows 96 tokens"),
        ([[1]], {"max_new_tokens": 0}, "max_new_tokens is 0"),
        ([[1]], {"temperature": -1.0}, "temperature is -1.0"),
        ([[1]], {"temperature": float("nan")}, "temperature is nan"),
        ([[1]], {"max_context": 257}, "max_context is 257; this model takes 1 to 256 tokens"),
        ([[1]], {"max_context": 0}, "max_context is 0"),
        ([[1] * 10], {"max_context": 12}, "a prompt of 10 tokens and 4 new ones do not fit the context of 12 tokens"),
        ([[1] * 250], {"max_new_tokens": 7}, "do not fit the context of 256 tokens"),
    ],
)
def test_requests_that_cannot_be_served(
    values: dict[str, Any], random_tensors: Any, write_model: Any, prompts: Any, arguments: dict[str, Any], message: str
) -> None:
    directory = write_model(values, random_tensors(values))
    config = LlamaConfig.from_directory(directory)
    with pytest.raises(RequestError, match=message):
        Generator(config, load_weights(directory, config)).generate(prompts, **{"max_new_tokens": 4, **arguments})

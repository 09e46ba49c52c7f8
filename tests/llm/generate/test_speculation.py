"""Speculation gives the text that the model gives alone: for all attention patterns, families, drafts and ways to choose tokens."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tempo_core as tp
from tempo_llm import Attention, Generator, Sampling
from tempo_llm.errors import RequestError
from tempo_llm.prefixes import Prefixes
from tempo_llm.requests import Completion, Generation, Request
from tempo_llm.sampling import GREEDY
from tempo_llm.speculation import LONGEST_NGRAM, ngrams
from tests.cases import fast, slow
from tests.llm import models, oracle
from tests.llm.model.test_llm_families import config as family

VOCABULARY = 16  # few tokens: a text soon comes to n-grams that it has
PROMPTS = [[1, 7, 5, 4, 8, 6, 3, 7, 5], [1, 2], [9, 9, 13]]
NEW = 14


@pytest.fixture
def make(random_tensors: Any, write_model: Any) -> Any:
    """`make(values, **options)`: a generator, interpreted with NumPy."""
    numbers = itertools.count()

    def generator(values: dict[str, Any], seed: int = 0, **options: Any) -> Generator:
        values = {**values, "vocab_size": values.get("vocab_size", VOCABULARY)}
        directory = write_model(values, random_tensors(values, seed), f"model{next(numbers)}")
        return Generator.from_directory(directory, **{"backend": "numpy", **options})

    return generator


def small(**changes: Any) -> dict[str, Any]:
    return {**models.VALUES, "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 16, **changes}


def texts(generation: Generation) -> list[tuple[int, ...]]:
    return [completion.token_ids for completion in generation.completions]


def same_text(generator: Generator, prompts: Any = PROMPTS, new: Any = NEW, count: int = 3, **options: Any) -> Generation:
    """Generate with and without speculation, and compare; the result with it."""
    alone = generator.generate(prompts, new, **options)
    result = generator.generate(prompts, new, speculate=count, **options)
    assert texts(result) == texts(alone)
    assert [each.finish_reason for each in result.completions] == [each.finish_reason for each in alone.completions]
    in_rounds = sum(len(each.token_ids) - runs_of(generator, each) for each in alone.completions)
    assert result.rounds + result.accepted == in_rounds and alone.rounds == 0
    return result


def runs_of(generator: Generator, completion: Completion) -> int:
    """How many runs a text takes, of which each begins with a token that is in no round: with LongRoPE, a longer text goes on in another."""
    short, prompt, text = generator.config.short_context, len(completion.prompt_ids), len(completion.token_ids)
    return 2 if short is not None and prompt <= short < prompt + text - 1 else 1


PATTERNS = [
    "full",
    "window=4",
    "window=3+sink=2",
    "window=3+sink=14",
    "block=5",
    "dilated=3",
    "dilated=2+window=3",
    "0:full,1:window=2",
]


@pytest.mark.parametrize("pattern", fast(PATTERNS, "window=3+sink=2", "block=5"))
def test_greedy_text_is_the_same_for_all_patterns(make: Any, pattern: str) -> None:
    generator = make(small(), attention=Attention.parse(pattern))
    assert same_text(generator).accepted > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["qwen3_next", "qwen3_5_text", "gemma3_text", "gpt_oss", "phi3"],
)
def test_greedy_text_is_the_same_for_families(make: Any, name: str) -> None:
    generator = make(family(name, {"vocab_size": VOCABULARY}))
    same_text(generator, PROMPTS[:2], 10, 2)


@pytest.mark.parametrize("count", fast([1, 2, 7], 2))
def test_compiled_text_is_the_oracles(make: Any, random_tensors: Any, count: int) -> None:
    values = small(num_hidden_layers=1)
    result = make(values, backend="jax").generate(PROMPTS, NEW, speculate=count)
    tensors = random_tensors(values)
    assert texts(result) == [tuple(oracle.greedy(values, tensors, prompt, NEW)) for prompt in PROMPTS]


# -- tokens that are drawn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling",
    [
        slow(Sampling(0.7)),
        Sampling(1.2, top_k=4, top_p=0.9, logit_bias={3: 1.5}),
        slow(Sampling(0.0, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2)),
    ],
    ids=["temperature", "filters", "penalties"],
)
def test_drawn_text_is_the_same(make: Any, sampling: Sampling) -> None:
    generator = make(small(num_hidden_layers=1))
    same_text(generator, sampling=sampling, samples=2, seed=5)


@pytest.mark.slow
def test_the_distribution_is_the_models(make: Any, random_tensors: Any) -> None:
    values, prompt, temperature, samples = small(num_hidden_layers=1, vocab_size=4), [1, 3, 2, 1, 3], 2.0, 2000
    generator = make(values, backend="jax")
    result = generator.generate([prompt], 3, temperature=temperature, samples=samples, speculate=2, seed=3)
    assert 0 < result.accepted_per_round < 2
    tensors, expected = random_tensors(values), {}
    for text in itertools.product(range(4), repeat=3):
        chance = 1.0
        for number, token in enumerate(text):
            logits = oracle.logits(values, tensors, [*prompt, *text[:number]]).astype(np.float64) / temperature
            chance *= np.exp(logits[token]) / np.exp(logits).sum()
        expected[text] = chance
    assert sum(expected.values()) == pytest.approx(1)
    counts = {text: texts(result).count(text) for text in expected}
    deviation = sum((counts[text] - samples * chance) ** 2 / (samples * chance) for text, chance in expected.items())
    assert deviation < 63 + 4 * np.sqrt(2 * 63)  # chi-square of 63 degrees of freedom, four standard deviations


def test_logprobs_are_the_same(make: Any) -> None:
    generator = make(small(num_hidden_layers=1))
    alone = generator.generate(PROMPTS[:2], 6, logprobs=3)
    result = generator.generate(PROMPTS[:2], 6, logprobs=3, speculate=3)
    for one, other in zip(alone.completions, result.completions, strict=True):
        assert one.token_ids == other.token_ids and one.logprobs is not None and other.logprobs is not None
        for a, b in zip(one.logprobs, other.logprobs, strict=True):
            assert a.logprob == pytest.approx(b.logprob, abs=1e-4)
            assert [token for token, _ in a.top] == [token for token, _ in b.top]


# -- ends ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ends_and_limits_in_the_middle_of_a_round(make: Any) -> None:
    generator = make(small())
    whole = texts(generator.generate(PROMPTS, NEW))
    for stop in sorted({token for text in whole for token in text[3:]})[:3]:
        same_text(generator, stop_ids=[stop])
    for new in (1, 4):
        same_text(generator, new=new)
    same_text(generator, PROMPTS[:2], 5, 20)


def test_streamed_pieces_are_the_whole(make: Any) -> None:
    generator = make(small())
    alone = texts(generator.generate(PROMPTS, NEW))
    for count in (1, 2, None):
        decoding = generator.start(Request(PROMPTS, NEW, speculate=3))
        tokens: dict[int, list[int]] = {number: [] for number in range(len(PROMPTS))}
        longest = 0
        for piece in decoding.pieces(count):
            tokens[piece.prompt] += piece.token_ids
            longest = max(longest, len(piece.token_ids))
        assert [tuple(each) for each in tokens.values()] == alone == texts(decoding.generation())
        assert longest > 1


def test_kept_prompts_are_used(make: Any) -> None:
    generator = make(small())
    generator.prefixes = Prefixes(2**24)
    prompt = [3, 4, 5, 6] * 9
    alone = texts(make(small()).generate([prompt, [*prompt, 1]], 6))
    assert texts(generator.generate([prompt], 6, speculate=2)) == alone[:1]
    assert texts(generator.generate([[*prompt, 1]], 6, speculate=2)) == alone[1:]


# -- drafts -------------------------------------------------------------------------------------------------------------


def expected_ngrams(told: list[int], count: int) -> list[int]:
    """The tokens after the latest place where the longest n-gram at the end stands before, written the plain way."""
    for size in range(LONGEST_NGRAM, 0, -1):
        for end in range(len(told) - 1, size - 1, -1):
            if told[end - size : end] == told[-size:]:
                text = list(told)
                for number in range(count):
                    text.append(text[end + number])
                return text[len(told) :]
    return []


def test_ngrams() -> None:
    random, size, count = np.random.default_rng(0), 24, 5
    ctx = tp.Context("t")
    with ctx as ((t, T),):
        told, length = tp.input("told", (size,), "int32", domain=(t,)), tp.input("length", (), "int32", domain=(t,))
        drafted = ngrams(told, length, count)
    rows = random.integers(0, 4, (200, size)).astype(np.int32)
    lengths = random.integers(2, size + 1, 200).astype(np.int32)
    (found,) = ctx.run({T: 200}, [drafted], {"told": rows, "length": lengths}, tp.Config(backend="numpy"))
    compared = 0
    for row, end, draft in zip(rows.tolist(), lengths.tolist(), found.tolist(), strict=True):
        expected = expected_ngrams(row[:end], count)
        compared += bool(expected)
        assert not expected or draft == expected
    assert compared > 100


@pytest.mark.parametrize("name", ["llama", pytest.param("qwen3_next", marks=pytest.mark.slow)])
def test_a_draft_model_with_the_same_weights_is_always_right(make: Any, name: str) -> None:
    values = small(num_hidden_layers=1) if name == "llama" else family(name, {"vocab_size": VOCABULARY})
    generator = make(values, draft=make(values))
    result = same_text(generator, PROMPTS[:2], 9, 3)
    assert result.accepted_per_round == 3  # 1 + 2 * 4 tokens


@pytest.mark.slow
def test_other_drafts_change_nothing(make: Any) -> None:
    recurrent = make(family("qwen3_next", {"vocab_size": VOCABULARY}), seed=1)
    for draft in (make(small(num_hidden_layers=1), seed=3), recurrent):
        generator = make(small(), draft=draft, attention=Attention.parse("0:full,1:window=3"))
        same_text(generator)
        same_text(generator, PROMPTS[:2], 6, 2, temperature=1.0, samples=2)


# -- mistakes, and what is stored ---------------------------------------------------------------------------------------


def test_mistakes_are_named(make: Any) -> None:
    generator = make(small(num_hidden_layers=1))
    for count in (-1, 65, 1.5, True, "4"):
        with pytest.raises(RequestError, match=r"speculate is .*; it must be a whole number of at least 0 and at most 64"):
            generator.generate([[1]], 2, speculate=count)
    with pytest.raises(RequestError, match="the draft model knows 9 tokens, but the model 16"):
        make(small(), draft=make(small(vocab_size=9)))
    both = make(small(num_hidden_layers=1), draft=generator)
    both.prefixes = Prefixes(2**20)
    with pytest.raises(RequestError, match="a draft model computes each prompt"):
        both.generate([[1]], 2, speculate=2)


@pytest.mark.slow
def test_stores_are_as_long_as_the_reach_and_the_drafted_tokens(make: Any) -> None:
    def slots(pattern: str) -> set[str]:
        """The types of the stores of keys of new tokens."""
        generator = make(small(), attention=Attention.parse(pattern), backend="jax")
        _, program = generator.program(GREEDY, sizes, bind=False, speculate=3)
        kept = [tensor for tensor in program.plan().tensors if ".new" in tensor.name and "keys" in tensor.name]
        return {str(tensor.type) for tensor in kept}

    sizes = make(small()).sizes(Request(PROMPTS[:1], 20).groups[0])
    assert sizes.new == 64
    assert slots("full") == {"float32[R, J, 2, 68, 4]"}
    assert slots("window=5+sink=2") == {"float32[R, J, 2, 2, 4]", "float32[R, J, 2, 8, 4]"}

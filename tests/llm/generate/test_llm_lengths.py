"""A text does not depend on how much of it is asked for, on the texts beside it, on chunks, on what is kept, or on what is drafted.

With LongRoPE, frequencies follow from the length of a text, so here its original context ends within the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tempo_llm import Generator, LlamaConfig, Sampling
from tempo_llm.generate import Request
from tempo_llm.prefixes import Prefixes
from tests.cases import fast
from tests.llm import models, oracle
from tests.llm.model.test_llm_families import ROWS, TIED, config
from tests.llm.serve.test_engine import Heard, running

VOCABULARY, NEW, CONTEXT = 24, 12, 20
PROMPTS = [
    [3, 5, 3, 5, 3, 5, 3, 9, 1, 2],
    list(range(1, 15)),
    [7, 2],
    [*range(20), 1, 2, 3],
    [8, *range(18)],
]  # 10, 14, 2, 23, 19 tokens
SEED = 8  # of weights with which texts tell the frequencies apart
LONG = {"rope_type": "longrope", "short_factor": [1.0, 1.5, 3.0, 4.0], "long_factor": [2.0, 7.0, 9.0, 30.0]}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {**models.VALUES, "rope_scaling": {**LONG, "original_max_position_embeddings": CONTEXT}},
    "mistral": {**models.VALUES, "model_type": "mistral", "sliding_window": 4},
    "qwen2": {**models.VALUES, "model_type": "qwen2"},
    **{name: config(name, {}) for name in ROWS},
}
FAMILIES["phi3"]["rope_scaling"] = {**ROWS["phi3"]["rope_scaling"], "original_max_position_embeddings": CONTEXT}
SAMPLED = Sampling(1.1, top_k=7, repetition_penalty=1.2, frequency_penalty=0.3, presence_penalty=0.1)


def values_of(name: str) -> dict[str, Any]:
    layers = {} if "layer_types" in FAMILIES[name] else {"num_hidden_layers": 2}
    return {**FAMILIES[name], "vocab_size": VOCABULARY, "eos_token_id": None, **layers}


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Generator]]:
    """`make(name, seed)`: a generator of a small model, which the tests share, with all of its programs."""
    made: dict[tuple[object, ...], Generator] = {}

    def generator(name: str, seed: int = SEED, draft: Generator | None = None, **options: Any) -> Generator:
        key = (name, seed, draft is None, *sorted(options.items()))
        if key not in made:
            values, directory = values_of(name), tmp_path_factory.mktemp(name) / "model"
            models.write_model(directory, values, models.random_tensors(values, seed, tied=name in TIED))
            made[key] = Generator.from_directory(directory, draft=draft, **{"backend": "numpy", "capacity": 64, **options})
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempo_llm.generate.PROGRAMS_KEPT", 100)
        yield generator


def texts(generator: Generator, new: int = NEW, prompts: list[list[int]] = PROMPTS, **settings: Any) -> list[list[int]]:
    return [list(each.token_ids) for each in generator.generate(prompts, new, **settings).completions]


def streamed(generator: Generator, chunk: int, **settings: Any) -> list[list[int]]:
    rows: dict[tuple[int, int], list[int]] = {}
    for piece in generator.start(Request(PROMPTS, NEW, **settings)).pieces(chunk):
        rows.setdefault((piece.prompt, piece.sample), []).extend(piece.token_ids)
    return [rows[place] for place in sorted(rows)]


@pytest.mark.slow
@pytest.mark.parametrize("name", fast(FAMILIES, "llama"))
def test_a_text_is_the_same_however_it_is_asked_for(name: str, make: Any) -> None:
    """Numbers of new tokens, alone and beside others, chunks, what is kept of prompts and of texts, and speculation."""
    generator, prefixes = make(name), Prefixes(2**24)
    whole = texts(generator)
    for new in (1, 7, 20):  # with the second, the second text has CONTEXT + 1 tokens
        assert [text[:NEW] for text in texts(generator, new)] == [text[:new] for text in whole], new
    assert streamed(generator, 3) == whole
    assert [texts(generator, prompts=[prompt])[0] for prompt in PROMPTS[:2]] == whole[:2]
    for prompt, text in list(zip(PROMPTS, whole, strict=True))[:2]:
        for count in (0, 8, 8):  # a text goes on behind a part of it, which is kept, or not
            request = Request([[*prompt, *text[:count]]], NEW - count)
            decoding = generator.start(request, prefixes)
            decoding.finish()
            assert list(decoding.generation().completions[0].token_ids) == text[count:], count
    assert texts(generator, speculate=2) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "phi3"])
def test_a_draft_changes_no_text(name: str, make: Any) -> None:
    assert texts(make(name, draft=make(name, 1)), speculate=2) == texts(make(name))


@pytest.mark.parametrize("name", fast(["llama", "phi3"], "llama"))
def test_a_text_with_longrope_is_the_oracles(name: str, make: Any) -> None:
    """The token after a text follows from all of it with the frequencies of its length: short ones for up to CONTEXT tokens."""
    values = values_of(name)
    tensors = models.random_tensors(values, SEED)
    expected = [oracle.greedy(values, tensors, prompt, NEW) for prompt in PROMPTS]
    assert texts(make(name)) == expected
    for length in (1, CONTEXT + 1, None):  # short or long frequencies for all of each text, or by the number of tokens asked for
        lengths = [len(prompt) + NEW if length is None else length for prompt in PROMPTS]
        others = [oracle.greedy(values, tensors, prompt, NEW, length=each) for prompt, each in zip(PROMPTS, lengths, strict=True)]
        assert sum(one != other for one, other in zip(expected, others, strict=True)) >= 2, length


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"speculate": 2}], ids=["plain", "speculation"])
def test_a_drawn_text_with_longrope_is_the_same(settings: dict[str, Any], make: Any) -> None:
    """Draws, penalties, samples and log-probabilities go on where a text outgrows the original context."""
    generator = make("llama")
    asked: dict[str, Any] = {"sampling": SAMPLED, "seed": 5, "samples": 2, "logprobs": 2}
    whole = generator.generate(PROMPTS, NEW, **asked)
    result = generator.generate(PROMPTS, NEW, **asked, **settings)
    assert [each.token_ids for each in result.completions] == [each.token_ids for each in whole.completions]
    for one, other in zip(result.completions, whole.completions, strict=True):
        assert one.logprobs is not None and other.logprobs is not None and len(one.logprobs) == NEW
        np.testing.assert_allclose([each.logprob for each in one.logprobs], [each.logprob for each in other.logprobs], atol=1e-5)
    shorter = generator.generate(PROMPTS, 5, **asked, **settings)
    assert [each.token_ids for each in shorter.completions] == [each.token_ids[:5] for each in whole.completions]
    pieces = streamed(generator, 2, sampling=SAMPLED, seed=5, samples=2, **settings)
    assert pieces == [list(each.token_ids) for each in whole.completions]
    if settings:
        drafted = result.rounds + result.accepted
        assert drafted <= 2 * len(PROMPTS) * (NEW - 1) and result.accepted > 0


@pytest.mark.slow
def test_a_drawn_text_with_longrope_is_that_of_its_parts(make: Any) -> None:
    """Without chance but with penalties: each token is the one that follows from penalised logits of the text so far."""
    sampling = Sampling(0.0, repetition_penalty=1.4, frequency_penalty=0.5, presence_penalty=0.2)
    generator, values = make("llama"), values_of("llama")
    tensors = models.random_tensors(values, SEED)
    for prompt, text in zip(PROMPTS, texts(generator, sampling=sampling), strict=True):
        for count, token in enumerate(text):
            logits = oracle.logits(values, tensors, [*prompt, *text[:count]])
            counts = np.bincount(text[:count], minlength=VOCABULARY)
            seen = (counts > 0) | np.isin(np.arange(VOCABULARY), prompt)
            penalised = np.where(seen, np.where(logits > 0, logits / 1.4, logits * 1.4), logits)
            assert token == (penalised - 0.5 * counts - 0.2 * (counts > 0)).argmax(), (prompt, count)


def test_a_profiled_text_is_the_same(make: Any) -> None:
    generator = make("llama")
    assert texts(generator, prompts=PROMPTS[1:2], profile=True) == texts(generator, prompts=PROMPTS[1:2])


def test_stopping_from_outside_ends_a_text_before_it_goes_on(make: Any) -> None:
    generator = make("llama")
    decoding = generator.start(Request(PROMPTS[1:2], NEW))
    for piece in decoding.pieces(1):
        decoding.stop(0, 3)
        assert piece.prompt == 0
    (completion,) = decoding.generation().completions
    count = len(completion.token_ids)
    assert count <= 3 and list(completion.token_ids) == texts(generator, prompts=PROMPTS[1:2])[0][:count]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", pytest.param("phi3", marks=pytest.mark.slow)])
def test_a_text_of_the_server_is_the_same(name: str, make: Any) -> None:
    """Rows pass the original context at different times; prompts are shared, and penalties go on."""
    generator, values = make(name), values_of(name)
    whole, drawn = texts(generator), texts(generator, sampling=SAMPLED, seed=5)
    tensors, long = models.random_tensors(values, SEED), [1, 2, *range(20), *range(20), *range(20), 5, 6, 7, 8]
    with running(make(name, backend="jax"), 4, prefixes=Prefixes(2**24)) as engine:
        heard = [Heard(engine, prompt, NEW) for prompt in PROMPTS] + [Heard(engine, PROMPTS[1], 3)]
        assert [each.wait() for each in heard] == [*whole, whole[1][:3]]
        assert [Heard(engine, prompt, NEW, sampling=SAMPLED, seed=5).wait() for prompt in PROMPTS] == drawn
        for prompt in (long, [*long, 4], long):  # the first tile is kept
            assert Heard(engine, prompt, 2).wait() == oracle.greedy(values, tensors, prompt, 2)


def test_what_is_kept_of_a_short_text_is_not_of_a_long_one(make: Any) -> None:
    """Prompts that share blocks, on both sides of the original context, in both orders."""
    generator = make("llama")
    base = [int(token) for token in np.random.default_rng(3).integers(0, VOCABULARY, 30)]
    expected = [texts(generator, 3, [base[:count]])[0] for count in (18, 30)]
    for order in ((0, 1), (1, 0)):
        kept = Prefixes(2**24)
        for place in (*order, *order):
            decoding = generator.start(Request([base[: (18, 30)[place]]], 3), kept)
            decoding.finish()
            assert list(decoding.generation().completions[0].token_ids) == expected[place]


def test_the_short_context_of_models() -> None:
    assert LlamaConfig.from_values(values_of("llama")).short_context == CONTEXT
    assert LlamaConfig.from_values(values_of("qwen2")).short_context is None
    same = {**LONG, "long_factor": LONG["short_factor"], "original_max_position_embeddings": CONTEXT}
    assert LlamaConfig.from_values({**values_of("llama"), "rope_scaling": same}).short_context is None  # as in GGUF files

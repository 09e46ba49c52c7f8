"""Attention patterns: their spelling, the tokens that they reach, the tokens that they generate, their stores, and mistakes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tempo_core as tp
from tempo_llm import Attention, Generator, Layers, LlamaConfig, PatternError, load_weights
from tempo_llm.attention import PATTERNS, parse_pattern
from tempo_llm.generate import Request
from tempo_llm.stacks import stretches
from tests.cases import fast
from tests.llm import oracle
from tests.llm.masks import SAMPLES

PROMPT = [1, 17, 5, 40, 8, 61, 3]


def test_every_pattern_has_a_mask() -> None:
    assert list(SAMPLES) == list(PATTERNS)
    assert all(re.sub(r"[0-9]+", "", SAMPLES[name].spelling) == re.sub(r"[A-Z]", "", name) for name in PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_pattern_reaches_what_its_mask_says(name: str) -> None:
    sample = SAMPLES[name]
    pattern = parse_pattern(sample.spelling)
    for length in (1, 2, 3, 9):
        reached = [pattern.positions(q, length) for q in range(length)]
        assert [sorted(row) for row in reached] == [[k for k in range(length) if sample.attends(q, k)] for q in range(length)]


def test_every_pattern_is_in_the_guide() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "llm.md").read_text(encoding="utf-8")
    assert [name for name in PATTERNS if f"`{name}`" not in page] == []


def test_a_pattern_of_ones_own() -> None:
    third = tp.nn.Pattern("every_third", lambda t, T: slice(t % 3, t + 1, 3))
    assert Attention((Layers(0, 0, tp.nn.causal), Layers(1, None, third))).by_layer(3) == (tp.nn.causal, third, third)


def test_words_come_in_any_order() -> None:
    assert parse_pattern(" sink=2 + window=3").name == parse_pattern("window=3+sink=2").name == "sinks(2, 3)"


def make_generator(values: dict[str, Any], tensors: Any, directory: Any, attention: str, **options: Any) -> Generator:
    config = LlamaConfig.from_directory(directory)
    return Generator(config, load_weights(directory, config), Attention.parse(attention), **options)


@pytest.mark.parametrize(  # "full" and "causal" are in test_llm_generate
    "name", fast([name for name in PATTERNS if name not in ("full", "causal")], "window=W+sink=K")
)
def test_a_pattern_generates_the_oracles_tokens(values: dict[str, Any], random_tensors: Any, write_model: Any, name: str) -> None:
    tensors = random_tensors(values)
    generator = make_generator(values, tensors, write_model(values, tensors), SAMPLES[name].spelling, backend="numpy")
    tokens = generator.generate([PROMPT], 10, max_context=18).completions[0].token_ids
    expected = oracle.greedy(values, tensors, PROMPT, 10, [SAMPLES[name].attends] * 2)
    assert list(tokens) == expected != oracle.greedy(values, tensors, PROMPT, 10)


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("block=B", marks=pytest.mark.slow), "window=W+sink=K"])
def test_a_pattern_ends_and_streams(values: dict[str, Any], random_tensors: Any, write_model: Any, name: str) -> None:
    """The loop ends inside of the program, also where layers read several slices of their past; pieces are there as they come."""
    tensors = random_tensors(values)
    generator = make_generator(values, tensors, write_model(values, tensors), SAMPLES[name].spelling, capacity=32)
    expected = oracle.greedy(values, tensors, PROMPT, 10, [SAMPLES[name].attends] * 2)
    stop = next(token for token in expected if expected.index(token) >= 3)
    ended = generator.generate([PROMPT], 20, stop_ids=[stop])
    count = expected.index(stop) + 1
    assert list(ended.completions[0].token_ids) == expected[:count] and ended.length == len(PROMPT) + count
    decoding = generator.start(Request([PROMPT], 10))
    pieces = [piece.token_ids for piece in decoding.pieces(2)]
    assert [token for piece in pieces for token in piece] == expected and len(pieces) > 3


LAYERED = {  # one pattern per layer, by their names in PATTERNS
    "0-1:full,2-:window=3+sink=2": ["full", "full", "window=W+sink=K", "window=W+sink=K"],
    "0:window=3, 1:block=4, 2:window=3, 3:dilated=3": ["window=W", "block=B", "window=W", "dilated=D"],
}
FIRST, SECOND = LAYERED


@pytest.mark.slow
@pytest.mark.parametrize(("attention", "backend"), [pytest.param(FIRST, "jax", marks=pytest.mark.slow), (SECOND, "numpy")])
def test_layers_with_different_patterns(
    values: dict[str, Any], random_tensors: Any, write_model: Any, attention: str, backend: str
) -> None:
    values |= {"num_hidden_layers": 4}
    tensors = random_tensors(values)
    generator = make_generator(values, tensors, write_model(values, tensors), attention, backend=backend)
    tokens = generator.generate([PROMPT], 8, max_context=15).completions[0].token_ids
    masks = [SAMPLES[name].attends for name in LAYERED[attention]]
    assert list(tokens) == oracle.greedy(values, tensors, PROMPT, 8, masks) != oracle.greedy(values, tensors, PROMPT, 8)


@pytest.mark.slow
def test_what_is_kept_of_the_keys_follows_from_the_layers_patterns(
    values: dict[str, Any], random_tensors: Any, write_model: Any
) -> None:
    """Two layers keep all 40 positions, and two keep the last 4 and the first 2, beside the prompt's keys [S, R, ...]."""
    values |= {"num_hidden_layers": 4}
    tensors = random_tensors(values)
    generator = make_generator(values, tensors, write_model(values, tensors), "0-1:full,2-:window=4+sink=2", capacity=40)
    text = generator.plan([PROMPT], 30, max_context=40, full=True)
    slots = re.findall(
        r"^ *(?:layers\.\d+\.)?attention\.keys\S* +float32\[R,J,\S+ +(?:block|window) +(?:1 x )*(\d+ x \d+)",
        text.replace(", ", ","),
        re.MULTILINE,
    )
    assert sorted(slots) == ["2 x 2", "4 x 2", "40 x 2"], text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown attention pattern ''; the patterns are full, causal, window=W, window=W+sink=K, block=B"),
        ("spiral", "unknown attention pattern 'spiral'; the patterns are full"),
        ("windw=4", "\n  hint: did you mean window?"),
        ("window", "the attention pattern 'window' needs a size\n  hint: write window=W, such as window=4"),
        ("sink+window=3", "the attention pattern 'sink' needs a size"),
        ("full=3", "the attention pattern 'full' takes no size, got '3'"),
        ("window=", "the size of window is ''; it must be a whole number of at least 1"),
        ("window=x", "the size of window is 'x'"),
        ("window=0", "the size of window is '0'"),
        ("window=-2", "the size of window is '-2'"),
        ("window=2.5", "the size of window is '2.5'"),
        ("window=1_000", "the size of window is '1_000'"),
        ("window=2+window=3", "gives window twice"),
        ("sink=4", "the attention pattern 'sink=4' lacks a part\n  hint: write window=W+sink=K"),
        ("block=4+sink=2", "the attention pattern 'block=4+sink=2' joins parts that do not go together"),
        ("0-3:full,window=4", "'window=4' does not name its layers\n  hint: write 3:full"),
        ("full,window=4", "'full' does not name its layers"),
        ("a-3:full", "'a-3:full' does not name its layers"),
        ("-3:full", "'-3:full' does not name its layers"),
        ("0 3:full", "'0 3:full' does not name its layers"),
        ("0-3:", "unknown attention pattern ''"),
        ("3-1:full", "the layers 3-1 end before they begin\n  hint: write 1-3"),
        ("0-3:window", "the attention pattern 'window' needs a size"),
    ],
)
def test_a_spelling_that_means_nothing(text: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        Attention.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-4:full", "layer 4 in `0-4` is out of range: this model has the layers 0 to 3"),
        ("0-3:full,4-:window=2", "layer 4 in `4-` is out of range: this model has the layers 0 to 3"),
        ("7:full", "layer 7 in `7` is out of range"),
        ("1-:full", "layer 0 has no attention pattern\n  hint: this model has the layers 0 to 3"),
        ("0:full,2-:full", "layer 1 has no attention pattern"),
        ("0-2:full,2-:window=3", "layer 2 has two attention patterns: causal and window(3)"),
    ],
)
def test_layers_that_do_not_fit_the_model(text: str, message: str) -> None:
    with pytest.raises(PatternError) as caught:
        Attention.parse(text).by_layer(4)
    assert message in str(caught.value)


def test_a_mistake_is_found_before_the_weights_are_read(values: dict[str, Any], write_model: Any) -> None:
    directory = write_model(values, {})
    with pytest.raises(PatternError, match="layer 5 in `5` is out of range"):
        Generator.from_directory(directory, Attention.parse("0-1:full,5:window=2"))


@pytest.mark.parametrize(
    ("kinds", "periods"),
    [
        ("F", [(1, 1)]),
        ("FFFF", [(1, 4)]),
        ("FFWW", [(1, 2), (1, 2)]),
        ("FWFWFW", [(2, 3)]),
        ("FWFWFWF", [(2, 3), (1, 1)]),
        ("WWWFWWWFWW", [(4, 2), (1, 2)]),
        ("FWBW", [(4, 1)]),
        ("FWWFWWB", [(3, 2), (1, 1)]),
    ],
)
def test_layers_become_loops_with_few_layers_in_them(kinds: str, periods: list[tuple[int, int]]) -> None:
    assert stretches(kinds) == periods


def test_a_pattern_that_reaches_later_tokens_is_an_error(values: dict[str, Any], random_tensors: Any, write_model: Any) -> None:
    pattern = tp.nn.Pattern("both_sides", lambda t, T: slice(tp.max(t - 2, 0), tp.min(t + 3, T)))
    generator = Generator.from_directory(write_model(values, random_tensors(values)), Attention((Layers(0, None, pattern),)))
    with pytest.raises(PatternError, match="the attention pattern `both_sides` reaches positions after the present one"):
        generator.generate([PROMPT], 2)

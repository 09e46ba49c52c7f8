"""Attention patterns as written on the command line: `window=1024+sink=4`, or by layers: `0-3:full,4-:window=1024`.

A pattern is one of `tp.nn`: a function from a position and the length to slices of positions. The compiler derives from it which
keys and values are stored, and for how long. A new pattern needs a row in `PATTERNS`, and its mask a row in `tests/llm/masks.py`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import tempo_core as tp
from tempo_llm.errors import PatternError


@dataclass(frozen=True)
class PatternKind:
    """A row of the table: a function from the sizes, given by name, to the pattern; and the tokens that it reaches, in words."""

    make: Callable[..., tp.nn.Pattern]
    reaches: str


PATTERNS: Mapping[str, PatternKind] = {  # by their spelling: words joined by +, each with a letter for its size or without one
    "full": PatternKind(lambda: tp.nn.causal, "every token so far"),
    "causal": PatternKind(lambda: tp.nn.causal, "the same: every token so far"),
    "window=W": PatternKind(lambda window: tp.nn.window(window), "the last W tokens"),
    "window=W+sink=K": PatternKind(lambda window, sink: tp.nn.sinks(sink, window), "the first K tokens and the last W"),
    "block=B": PatternKind(lambda block: tp.nn.block(block), "the tokens so far of the block of B that it is in"),
    "dilated=D": PatternKind(lambda dilated: tp.nn.dilated(dilated), "every D-th token, counted back from the present one"),
    "dilated=D+window=W": PatternKind(
        lambda dilated, window: tp.nn.dilated(dilated, window), "the nearest W of every D-th token"
    ),
}


def parse_pattern(text: str) -> tp.nn.Pattern:
    """The pattern with the spelling `text`, such as `window=1024+sink=4`, its words in any order. Raises PatternError."""
    terms = _terms(text)
    kinds = {frozenset(_terms(spelling)): (spelling, kind) for spelling, kind in PATTERNS.items()}
    vocabulary = sorted({word for words in kinds for word in words})
    for word in terms:
        if word not in vocabulary:
            near = difflib.get_close_matches(word, vocabulary, 1)
            raise PatternError(
                f"unknown attention pattern {text!r}; the patterns are {', '.join(PATTERNS)}",
                hint=f"did you mean {near[0]}?" if near else None,
            )
    if frozenset(terms) not in kinds:
        longer = [spelling for words, (spelling, _) in kinds.items() if words > set(terms)]
        raise PatternError(
            f"the attention pattern {text!r} "
            + ("lacks a part" if longer else f"joins parts that do not go together; the patterns are {', '.join(PATTERNS)}"),
            hint=f"write {' or '.join(longer)}" if longer else None,
        )
    spelling, kind = kinds[frozenset(terms)]
    sizes = {word: _size(word, terms[word], letter) for word, letter in _terms(spelling).items()}
    return kind.make(**{word: size for word, size in sizes.items() if size is not None})


def spelling_of(pattern: tp.nn.Pattern) -> str:
    """The spelling of a pattern, or its name if none of the table gives it."""
    numbers = re.findall(r"[0-9]+", pattern.name)
    for spelling in PATTERNS:
        words = _terms(spelling)
        count = sum(letter is not None for letter in words.values())
        for sizes in permutations(numbers) if count == len(numbers) else ():
            given = iter(sizes)
            text = "+".join(word if letter is None else f"{word}={next(given)}" for word, letter in words.items())
            if "0" not in sizes and parse_pattern(text).name == pattern.name:
                return text
    return pattern.name


def _terms(text: str) -> dict[str, str | None]:
    """The words of a spelling with their sizes. The size of a word without `=` is None."""
    sizes: dict[str, str | None] = {}
    for term in text.strip().split("+"):
        word, sign, size = (part.strip() for part in term.partition("="))
        if word in sizes:
            raise PatternError(f"the attention pattern {text!r} gives {word} twice")
        sizes[word] = size if sign else None
    return sizes


def _size(word: str, text: str | None, letter: str | None) -> int | None:
    """The size `text` of a word, as a number. A word without a `letter` in the table has no size: None."""
    if letter is None:
        if text is not None:
            raise PatternError(f"the attention pattern {word!r} takes no size, got {text!r}", hint=f"write {word}")
        return None
    if text is None:
        raise PatternError(f"the attention pattern {word!r} needs a size", hint=f"write {word}={letter}, such as {word}=4")
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise PatternError(
            f"the size of {word} is {text!r}; it must be a whole number of at least 1", hint=f"write {word}=4, for example"
        )
    return int(text)


# -- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layers:
    """A pattern for the layers `first` to `last`, both included, counted from 0. If `last` is None, up to the model's last layer."""

    first: int
    last: int | None
    pattern: tp.nn.Pattern

    def __str__(self) -> str:
        last = "" if self.last is None else self.last
        return f"`{self.first}`" if self.last == self.first else f"`{self.first}-{last}`"


@dataclass(frozen=True)
class Attention:
    """The attention patterns of a model, layer by layer. The default is every token so far, in all layers."""

    parts: tuple[Layers, ...] = (Layers(0, None, tp.nn.causal),)

    @staticmethod
    def of_windows(windows: Sequence[int | None]) -> Attention:
        """The patterns of a model whose configuration gives each layer a sliding window, or None for every token so far."""
        kinds = {size: tp.nn.causal if size is None else tp.nn.window(size) for size in windows}
        return Attention(tuple(Layers(k, k, kinds[size]) for k, size in enumerate(windows))) if windows else Attention()

    @staticmethod
    def parse(text: str) -> Attention:
        """`PATTERN` for all layers, or `LAYERS:PATTERN,LAYERS:PATTERN,...`, where LAYERS is `3`, `0-3`, or `4-` for all from 4 on.

        Raises PatternError, which names the wrong part.
        """
        if ":" not in text and "," not in text:
            return Attention((Layers(0, None, parse_pattern(text)),))
        return Attention(tuple(_layers(part) for part in text.split(",")))

    def by_layer(self, count: int) -> tuple[tp.nn.Pattern, ...]:
        """The pattern of each layer of a model with `count` layers.

        Raises PatternError for a layer that the model does not have, and for a layer without a pattern or with two.
        """
        patterns: dict[int, tp.nn.Pattern] = {}
        for part in self.parts:
            last = count - 1 if part.last is None else part.last
            if part.first >= count or last >= count:
                missing = part.first if part.first >= count else last
                raise PatternError(f"layer {missing} in {part} is out of range: this model has the layers 0 to {count - 1}")
            for layer in range(part.first, last + 1):
                if layer in patterns:
                    names = f"{patterns[layer].name} and {part.pattern.name}"
                    raise PatternError(f"layer {layer} has two attention patterns: {names}")
                patterns[layer] = part.pattern
        bare = [layer for layer in range(count) if layer not in patterns]
        if bare:
            raise PatternError(
                f"layer {bare[0]} has no attention pattern",
                hint=f"this model has the layers 0 to {count - 1}: add {bare[0]}-:full",
            )
        return tuple(patterns[layer] for layer in range(count))


def _layers(part: str) -> Layers:
    """One `LAYERS:PATTERN`."""
    layers, sign, pattern = part.partition(":")
    match = re.fullmatch(r"\s*([0-9]{1,9})\s*(-)?\s*([0-9]{1,9})?\s*", layers)
    if not sign or match is None or (match[3] is not None and match[2] is None):
        raise PatternError(
            f"{part.strip()!r} does not name its layers",
            hint="write 3:full, 0-3:full, or 4-:full for layer 4 and all after it",
        )
    first = int(match[1])
    last = first if match[2] is None else None if match[3] is None else int(match[3])
    if last is not None and last < first:
        raise PatternError(f"the layers {layers.strip()} end before they begin", hint=f"write {last}-{first}")
    return Layers(first, last, parse_pattern(pattern))

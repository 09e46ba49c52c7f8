"""The layers of a model as loops: stretches in which the same kinds of layers come again and again.

A layer's *kind* is its description with its attention pattern. The kinds `W W F W W F W W` are two stacks: `W W F`, twice, and `W`, twice. So
the program has four layers in two loops, each with the weights of its own layers, and with stores of keys and values that are as long as its
own pattern reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tempo_core as tp
from tempo_llm.attention import Attention
from tempo_llm.config import LlamaConfig
from tempo_llm.layer import Layer

LONGEST_PERIOD = 16


@dataclass(frozen=True)
class Body:
    """A layer of the program: it stands for the layers `first`, `first + stride`, ... of the model, as many as its stack repeats."""

    first: int
    stride: int
    layer: Layer
    pattern: tp.nn.Pattern  # of attention, if the layer has attention


@dataclass(frozen=True)
class Stack:
    """A loop of the program: `bodies`, one after the other, `repeats` times."""

    bodies: tuple[Body, ...]
    repeats: int


def stacks_of(config: LlamaConfig, attention: Attention) -> tuple[Stack, ...]:
    """The loops of a model with these attention patterns."""
    patterns = attention.by_layer(config.num_hidden_layers)
    kinds = [(layer, pattern.name if layer.delta is None else "") for layer, pattern in zip(config.layers, patterns, strict=True)]
    stacks = []
    first = 0
    for period, repeats in stretches(kinds):
        bodies = (Body(first + k, period, config.layers[first + k], patterns[first + k]) for k in range(period))
        stacks.append(Stack(tuple(bodies), repeats))
        first += period * repeats
    return tuple(stacks)


def windowed_stacks(config: LlamaConfig) -> tuple[Stack, ...]:
    """The loops of a model with the windows of its configuration."""
    return stacks_of(config, Attention.of_windows(config.windows))


def stretches(kinds: Sequence[object]) -> list[tuple[int, int]]:
    """The periods of a sequence and how often each comes: the fewest elements in all periods, then the fewest periods, long ones first."""
    count = len(kinds)
    equal = [
        [0] * (count + 1) for _ in range(LONGEST_PERIOD + 1)
    ]  # by period: how many elements from here on equal the one a period later
    best: list[tuple[int, int]] = [(0, 0)] * (count + 1)  # from here on: elements in all periods, and periods
    choice = [(0, 0)] * count
    for first in reversed(range(count)):
        options = []
        for period in range(1, min(LONGEST_PERIOD, count - first) + 1):
            is_equal = first + period < count and kinds[first] == kinds[first + period]
            equal[period][first] = 1 + equal[period][first + 1] if is_equal else 0
            repeats = equal[period][first] // period + 1
            elements, periods = best[first + period * repeats]
            options.append(((elements + period, periods + 1), -period * repeats, (period, repeats)))
        best[first], _, choice[first] = min(options)
    result = []
    first = 0
    while first < count:
        result.append(choice[first])
        first += choice[first][0] * choice[first][1]
    return result


def prefix(body: Body, stacks: Sequence[Stack]) -> str:
    """The name of a layer of the program. It is empty if one layer stands for all layers of the model."""
    return "" if len(stacks) == len(stacks[0].bodies) == 1 else f"layers.{body.first}"

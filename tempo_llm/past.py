"""What was computed of a prompt, between the arrays of a program and those of a prefix that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tempo_llm.config import LlamaConfig
from tempo_llm.llama import Decoder
from tempo_llm.prefixes import Kept, Prefix, Prefixes


def names(tokens: Sequence[int], config: LlamaConfig) -> list[int]:
    """The tokens of a prompt, as prefixes are named by them. Those of a text beyond the short context of LongRoPE have numbers of their own:
    what is computed of them differs."""
    is_long = config.short_context is not None and len(tokens) > config.short_context
    return [int(token) + config.vocab_size * is_long for token in tokens]


class Arrays(Protocol):
    """Arrays by name."""

    def __getitem__(self, name: str) -> np.ndarray: ...


def first_arrays(decoder: Decoder) -> dict[str, np.ndarray]:
    """The inputs of a past of no tokens: one block before the first position, and states of zeros."""
    return {
        name: np.zeros(kind.shape if kind.is_state else (1, decoder.block, *kind.shape), kind.dtype)
        for name, kind in decoder.kept.items()
    }


def arrays_of(prefix: Prefix, count: int, decoder: Decoder) -> dict[str, np.ndarray]:
    """The inputs of a past of the first `count` tokens of a prefix: keys and values [blocks + 1, places, layers, ...], and states."""
    arrays = first_arrays(decoder)
    size = decoder.block
    for name, kept in prefix.layers.items():
        if kept.is_state:
            arrays[name] = kept.array
            continue
        positions = np.zeros((count + size, *kept.array.shape[1:]), kept.array.dtype)
        first = len(prefix.tokens) - len(kept.array)  # the positions before it are not read
        positions[size + first :] = kept.array[: max(count - first, 0)]
        arrays[name] = positions.reshape(-1, size, *kept.array.shape[1:])
    return arrays


def past_of(decoder: Decoder, prompts: Sequence[Sequence[int]], prefixes: Prefixes) -> tuple[dict[str, np.ndarray], int]:
    """What is known of the first blocks of prompts, and of how many: one more than the blocks that need not be computed."""
    named = [names(prompt, decoder.model.config) for prompt in prompts]
    shortest = min(named, key=len)
    columns = enumerate(zip(*named, strict=False))
    shared = next((k for k, tokens in columns if len(set(tokens)) > 1), len(shortest))  # tokens of all prompts
    kept = prefixes.find(shortest[: min(shared + 1, len(shortest))], decoder.block)
    if kept is None:
        return first_arrays(decoder), 1
    prefix, count = kept
    return arrays_of(prefix, count, decoder), count // decoder.block + 1


def prefix_of(decoder: Decoder, tokens: Sequence[int], blocks: int, results: Arrays, row: int) -> Prefix | None:
    """What a run has computed of a prompt, one of its rows, whose longest prompt has so many blocks, with the one before the first.

    States are those before the last block: with them, all is kept up to there. None if nothing can be kept.
    """
    size, count = decoder.block, len(tokens)
    if any(kind.is_state for kind in decoder.kept.values()):
        if -(-count // size) < blocks - 1:
            return None  # the state of a shorter prompt was left behind
        count = (blocks - 2) * size
        if count == 0:
            return None
    layers: dict[str, Kept] = {}
    for name, kind in decoder.kept.items():
        array = np.asarray(results[name])[row]
        if kind.is_state:
            layers[name] = Kept(array, None, True)
            continue
        by_block = np.moveaxis(array, (kind.layers, kind.layers + 1), (0, 1))  # [blocks, places, layers, ...]
        positions = by_block.reshape(-1, *by_block.shape[2:])
        first = (blocks - 1) * size - len(positions)  # the position of the first; the block before position 0 may be there
        held = positions[max(-first, 0) : max(count - first, 0)]
        if len(held) == 0:
            return None
        layers[name] = Kept(held, kind.reach)
    return Prefix(tuple(names(tokens, decoder.model.config)[:count]), layers)

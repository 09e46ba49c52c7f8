"""Ours, as its user has it: a model, and a stream of its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import tempo_llm
from benchmarks.llm.models import has_weights, random_weights
from benchmarks.llm.systems import Unsupported
from tempo_llm import Generator, LlamaConfig, Model, Piece, RequestError


def load(directory: Path, dtype: str, window: int) -> Loaded:
    """The model of a directory. Its configuration has the window."""
    if not has_weights(directory):
        config = LlamaConfig.from_directory(directory)
        return Loaded(Model(Generator(config, random_weights(config, dtype)), None, directory))
    try:
        return Loaded(tempo_llm.load(directory, dtype))
    except RequestError as error:
        raise Unsupported(str(error).splitlines()[0]) from error


class Loaded:
    def __init__(self, model: Model):
        self.model = model

    def start(self, prompts: Sequence[Sequence[int]], count: int, times: int) -> list[list[int]]:
        self.rows = len(prompts)
        self.pieces: Iterator[Piece] = self.model.generate(
            prompts, 1 + count * times, stream=True, chunk=max(count, 1), ignore_eos=True
        )
        return self.advance(1)

    def advance(self, count: int) -> list[list[int]]:
        """The tokens of one launch: a piece of each row. `start` has said how many there are."""
        pieces = [next(self.pieces) for _ in range(self.rows)]
        return [list(piece.token_ids) for piece in sorted(pieces, key=lambda piece: piece.prompt)]

"""The encoder of observations with choices (Discrete, MultiDiscrete): a row of a table for each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

import tempo_core as tp
from tempo_rl.env.spaces import Observations
from tempo_rl.errors import RecipeError

LARGEST = 2**31 - 1  # elements of a table
NARROWEST, WIDEST, TOGETHER = 8, 64, 512  # numbers of a choice, and of all of them, by default


@dataclass(frozen=True)
class Choices:
    """An embedding of observations (..., n) whose last `len(counts)` numbers are choices; the others stay as they are.

    All choices share one table of sum(counts) rows. Its parameter is read at the point `index` (None: at the reader's own point). Without a
    table, choices become one-hot.
    """

    shape: tuple[int, ...]  # of an observation; with frames, (frames, n)
    counts: tuple[int, ...]
    table: tp.nn.Embedding | None
    index: tuple[tp.Expr | int, ...] | None = None

    @staticmethod
    def build(
        observations: Observations, width: int | None, domain: Sequence[tp.Expr], fed: bool, name: str = "embedding"
    ) -> Choices:
        """The table `name` of rows of `width` numbers, or one-hot choices if that is 0.

        By default a choice has 64 numbers. If there are more than eight choices, all have 512 together, but each at least 8. Raises
        `RecipeError` for a table that is too large.
        """
        rows = sum(observations.counts)
        width = max(NARROWEST, min(WIDEST, TOGETHER // len(observations.counts))) if width is None else width
        if rows * max(width, 1) > LARGEST:
            raise RecipeError(
                f"the embedding of {rows:,} values x {width:,} is too large: at most {LARGEST:,} weights",
                hint="use a narrower one: embedding=8",
            )
        table = tp.nn.Embedding(rows, width, domain=tuple(domain), fed=fed, name=name) if width else None
        return Choices(observations.shape, observations.counts, table)

    @property
    def size(self) -> int:
        """The number of features."""
        *frames, n = self.shape
        width = sum(self.counts) if self.table is None else len(self.counts) * self.table.weight.shape[-1]
        return int(np.prod(frames, dtype=int)) * (n - len(self.counts) + int(width))

    def __call__(self, observation: tp.Tensor, numbers: tp.Tensor) -> tp.Tensor:
        """`observation` (..., *shape) -> (..., size). The numbers that are not choices are read from `numbers` (..., *shape), float32."""
        batch, count = observation.shape[: observation.rank - len(self.shape)], len(self.counts)
        frames, n = self.shape[:-1], self.shape[-1]
        first = tuple(accumulate(self.counts[:-1], initial=0))  # row of each choice
        choices = observation if count == n else observation.spatial[(..., slice(n - count, n))]
        rows = choices.astype("int32") + tp.constant(np.asarray(first, np.int32))
        if self.table is None:
            features = rows.one_hot(sum(self.counts)).sum(-2)
        else:
            features = (self.table if self.index is None else self.table[self.index])(rows)
            features = features.reshape(*batch, *frames, count * self.table.weight.shape[-1])
        if count < n:
            features = tp.concatenate([numbers.spatial[(..., slice(0, n - count))], features], axis=-1)
        return features.reshape(*batch, self.size) if frames else features

    def parameters(self) -> dict[str, tp.Tensor]:
        return {} if self.table is None else dict(self.table.parameters())

    def using(self, parameters: Mapping[str, tp.Tensor]) -> Choices:
        """The encoder with another tensor as its table, by name."""
        if self.table is None:
            return self
        return replace(self, table=self.table.using({name: parameters[name] for name in self.table.parameters()}))

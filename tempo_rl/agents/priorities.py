"""Prioritized replay, in proportion to errors (Schaul et al., 2016, arXiv:1511.05952, algorithm 1): a recurrence over the buffer's places."""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.recipe import DQNRecipe

LEAST = 1e-6  # of priorities


class Priorities:
    """The priorities of the rows of a replay buffer, over (i, u): what an update writes, the next one reads.

    The step k of the run has the place k mod N, where N is the size of the buffer. The steps of a new iteration get the largest priority so far.
    """

    def __init__(self, recipe: DQNRecipe, point: tuple[tp.Expr, tp.Expr], iterations: tp.Expr):
        self.recipe, self.point = recipe, point
        self._steps = recipe.num_envs * recipe.num_steps
        i, _ = point
        start = recipe.importance_exponent
        is_constant = isinstance(start, float) and start == 1.0  # which does not depend on `iterations`
        self._importance = start if is_constant else start + (1.0 - start) * (i / iterations)
        self._stored = tp.recurrence((recipe.replay_iterations * self._steps,), domain=point, name="priorities")
        self._largest = tp.recurrence((), domain=point, name="largest priority")

    def draw(self, oldest: tp.Expr, first: tp.Expr | int, size: tp.Expr) -> tp.Tensor:
        """Rows (batch_size,) of the buffer, from `first` to before `size`. The row 0 is the first step of the iteration `oldest`.

        A row is drawn from each of `batch_size` parts of the same probability. `weights` (batch_size,) are those of the rows in the loss.
        """
        (i, u), recipe, count = self.point, self.recipe, self.recipe.replay_iterations * self._steps
        rows = (tp.arange(count) - (oldest % recipe.replay_iterations) * self._steps) % count  # of the places, oldest step first
        is_new = (rows >= (i - oldest) * self._steps) & (u == 0)
        self._priorities = tp.where(is_new, self._largest, self._stored)
        masses = tp.where((rows >= first) & (rows < size), self._priorities**recipe.priority_exponent, 0.0)
        sums = masses.cumsum()
        total = sums.spatial[count - 1]
        parts = tp.arange(recipe.batch_size) + tp.random.uniform((recipe.batch_size,), domain=self.point)
        self._places = tp.minimum(tp.searchsorted(sums, parts * (total / recipe.batch_size), "right"), count - 1)
        probability = tp.maximum(masses.take(self._places), LEAST**recipe.priority_exponent) / total
        weights = (probability * (size - first)) ** -self._importance
        self.weights = (weights / weights.max()).detach()
        return tp.minimum(rows.take(self._places), size - 1).detach()

    def follow(self, errors: tp.Tensor, where: tp.typing.Value) -> None:
        """The sizes of these errors (batch_size,) are the next priorities of the rows that were drawn, `where` the update is not skipped."""
        priorities = tp.where(where, tp.abs(errors) + LEAST, self._priorities.take(self._places))
        tp.carry(self._stored, 0.0, self._priorities.scatter(self._places, priorities).detach())
        largest = tp.maximum(self._largest, priorities.max())
        tp.carry(self._largest, 1.0, tp.where(where, largest, self._largest).detach())

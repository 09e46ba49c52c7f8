"""The replay buffer: a window of the last iterations, of which each update draws random rows. What is older is not kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tempo_core as tp
from tempo_rl.agents.priorities import Priorities
from tempo_rl.env.spaces import Observations
from tempo_rl.env.transition import Transition
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import ReplayRecipe

Bounds = tuple[tp.Expr, tp.Expr]


@dataclass(frozen=True)
class ReplayedSteps:
    """The rows (n, batch_size) of some steps from each drawn row on. Those count that belong to its episode and are in the buffer."""

    replay: Replay
    rows: tp.Tensor
    belongs: tp.Tensor

    @property
    def count(self) -> tp.Tensor:
        """How many steps of each row count (batch_size,), int32."""
        return self.belongs.astype("int32").sum(0)

    def discounted(self, x: tp.Tensor, gamma: float, change: Callable[[tp.Tensor], tp.Tensor]) -> tp.Tensor:
        """The discounted sum (batch_size,) of `change` of `x` over the steps that count, through which no gradient flows."""
        weights = gamma ** tp.arange(self.rows.shape[0]).astype("float32")  # `gamma` is a tensor in a sweep
        return (tp.where(self.belongs, change(self.replay._at(x, self.rows)), 0.0) * weights.expand_dims(1)).sum(0)


@dataclass(frozen=True)
class Replay:
    """Rows of tensors over (i, t, b), drawn anew at each point of a domain of updates.

    Pictures (bytes in rows and columns) are stored once: the successor of a row is the row of its environment one step later. So the newest row
    of each environment is not drawn yet, and a row that a time limit ended, whose successor is not stored, has no weight in a loss. A stack of
    frames is made anew of the frames of its episode, so that the oldest rows, whose earlier frames are gone, are no longer drawn.
    """

    iterations: tuple[tp.Expr, tp.Expr]  # from the oldest one to after the newest
    bounds: Bounds  # of t and b
    rows: tp.Tensor
    stores_once: bool
    has_started: tp.typing.Value  # whether updates have, after `learning_starts` steps
    frames: int = 1  # that are stored once, and stacked

    @staticmethod
    def of(
        recipe: ReplayRecipe,
        observations: Observations,
        i: tp.Expr,
        bounds: Bounds,
        domain: Sequence[tp.Expr],
        priorities: Priorities | None = None,
    ) -> Replay:
        """The buffer of a recipe, with `batch_size` rows at each point of `domain`: all as likely, or as `priorities` draw them.

        Raises `RecipeError` if it can never hold two steps.
        """
        B = bounds[1]
        oldest, stores_once = tp.max(i - recipe.replay_iterations + 1, 0), observations.are_pictures
        frames = recipe.frames if stores_once else 1
        if stores_once and recipe.num_steps < 2:
            raise RecipeError("pictures are stored once, so an iteration needs two steps", hint="num_steps=2")
        if frames > recipe.replay_iterations * recipe.num_steps - 1:
            raise RecipeError(
                f"buffer_size={recipe.buffer_size} holds fewer steps of an environment than a picture of frames={frames} and its successor have",
                hint=f"buffer_size={(frames + recipe.num_steps) * recipe.num_envs}",
            )
        first = tp.min(oldest, 1) * (frames - 1) * B if frames > 1 else 0
        size = _stored(i + 1 - oldest, bounds, stores_once)
        if priorities is not None:
            rows = priorities.draw(oldest, first, size)
        else:
            count = size - first
            drawn = tp.minimum(tp.random.uniform((recipe.batch_size,), domain=tuple(domain)) * count, count - 1)
            rows = drawn.astype("int32") if frames == 1 else drawn.astype("int32") + first
        has_started = (i + 1) * (recipe.num_envs * recipe.num_steps) > recipe.learning_starts
        return Replay((oldest, i + 1), bounds, rows, stores_once, has_started, frames)

    def __call__(self, x: tp.Tensor, ahead: tp.Tensor | None = None) -> tp.Tensor:
        """The drawn rows (batch_size, ...) of `x`, or those `ahead` steps (batch_size,) after them, through which no gradient flows."""
        return self._at(x, self._ahead(ahead))

    def steps(self, n: int, ended: tp.Tensor) -> ReplayedSteps:
        """The `n` steps from each drawn row on, through the iterations after its own. `ended` says where an episode ended."""
        (oldest, end), B = self.iterations, self.bounds[1]
        rows = self.rows + (tp.arange(n) * B).reshape(n, 1)
        ends = self._at(ended, rows).astype("int32")
        return ReplayedSteps(self, rows, (ends.cumsum(0) == ends) & (rows < _stored(end - oldest, self.bounds, self.stores_once)))

    def observed(self, obs: tp.Tensor, step: Transition[tp.Tensor]) -> tp.Tensor:
        """The observations of the drawn rows."""
        return self._stacked(obs, step, self.rows)

    def following(
        self, obs: tp.Tensor, step: Transition[tp.Tensor], ahead: tp.Tensor | None = None
    ) -> tuple[tp.Tensor, tp.Tensor]:
        """The observations after the drawn rows, and the weights (batch_size,) of the rows in a loss, whose mean is 1 or 0.

        With `ahead` (batch_size,), those so many steps after the rows.
        """
        if not self.stores_once:
            return self(step.final_observation, ahead), tp.ones((self.rows.shape[0],))
        (oldest, end), B = self.iterations, self.bounds[1]
        last = self._ahead(ahead)
        is_stored = ~self(step.truncated, ahead) & (last < _stored(end - oldest, self.bounds, self.stores_once))
        weight = is_stored.astype("float32")
        return self._stacked(obs, step, last + B), weight / tp.maximum(weight.mean(), 1e-8)

    def learns(self, weight: tp.Tensor) -> tp.typing.Value:
        """Whether there is an update: if it `has_started`, and a row has a `weight` (of `following`)."""
        return (weight.max() > 0.0) & self.has_started if self.stores_once else self.has_started

    def _stacked(self, obs: tp.Tensor, step: Transition[tp.Tensor], rows: tp.Tensor) -> tp.Tensor:
        """The observations (batch_size, frames, ...) at `rows`, of which each frame is read from the step that saw it."""
        if self.frames == 1:
            return self._at(obs, rows)
        newest, age = obs.index(0, self.frames - 1), self._at(step.episode_length - 1, rows)
        earlier = [rows - tp.minimum(age, k) * self.bounds[1] for k in range(self.frames - 1, -1, -1)]
        return tp.stack([self._at(newest, each) for each in earlier], 1)

    def _ahead(self, ahead: tp.Tensor | None) -> tp.Tensor:
        return self.rows if ahead is None else self.rows + ahead * self.bounds[1]

    def _at(self, x: tp.Tensor, rows: tp.Tensor) -> tp.Tensor:
        (oldest, end), (T, B) = self.iterations, self.bounds
        return x[oldest:end, 0:T, 0:B].reshape((end - oldest) * T * B, *x.shape).take(rows).detach()


def _stored(iterations: tp.Expr, bounds: Bounds, stores_once: bool) -> tp.Expr:
    """How many rows of the last iterations have a successor that is stored."""
    T, B = bounds
    return (iterations * T - int(stores_once)) * B

"""The work of training on the host after each iteration: check it, log it and show it."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from tempo_core.runs.logger import Row
from tempo_rl.checkpoint import Numbers
from tempo_rl.errors import RunError
from tempo_rl.recipe import ContinuousRecipe, Recipe
from tempo_rl.streams import mend

Arrays: TypeAlias = Mapping[str, np.ndarray]
RECENT = 10  # iterations whose mean return says how good the parameters are


def interval(values: np.ndarray) -> tuple[float, float]:
    """The mean of numbers, and half the width of its 95 % interval (normal, from their deviation); those that are not finite are left out."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not len(finite):
        return math.nan, math.nan
    return float(finite.mean()), float(1.96 * finite.std(ddof=1) / math.sqrt(len(finite))) if len(finite) > 1 else 0.0


class Logger(Protocol):
    """A receiver of one row per iteration."""

    def log(self, row: Row) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Iteration:
    """What a callback gets after an iteration: its number, the environment steps so far, its metrics, and the parameters at its end."""

    iteration: int  # counted from 0
    env_steps: int
    metrics: Mapping[str, float]
    parameters: Mapping[str, np.ndarray]


Callback: TypeAlias = Callable[[Iteration], bool | None]
"""A function that is called after each iteration. Training stops, and is saved, after an iteration for which it returns True."""


def lower(recipe: Recipe) -> str:
    """What to try if learning diverges."""
    if isinstance(recipe, ContinuousRecipe):
        return "lower q_lr and policy_lr, for example q_lr=1e-4"
    return "lower learning_rate or max_grad_norm, for example learning_rate=1e-4"


class DivergenceError(RunError):
    """The loss or a parameter is not finite."""


class TrainingMonitor:
    """Receives an agent's metrics and parameters of each iteration, and keeps the latest good ones.

    It raises `RunError`, which ends the running program, if the loss or a parameter is not finite.
    """

    def __init__(self, recipe: Recipe, loggers: list[Logger], show: Callable[[Row], None], callbacks: Sequence[Callback] = ()):
        self.recipe, self._loggers, self._show, self._callbacks = recipe, loggers, show, callbacks
        self.stop_requested = False  # by a callback
        self.iterations = 0
        self.latest: dict[str, np.ndarray] | None = None
        self.times: list[float] = []
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._stopped = False
        self.member_loggers: list[Logger] = []  # of a run with many members, one for each
        self.member_returns: list[deque[float]] = [deque(maxlen=RECENT) for _ in range(recipe.count if recipe.count > 1 else 0)]
        self.diverged: dict[
            int, int
        ] = {}  # members whose loss or parameters are not finite, with the iteration; they are left out
        self._steps = recipe.num_envs * recipe.num_steps

    @property
    def env_steps(self) -> int:
        return self.iterations * self._steps

    @property
    def recent_return(self) -> float | None:
        """The mean return of the last iterations in which episodes ended; None before the first."""
        return float(np.mean(self._recent)) if self._recent else None

    @property
    def recent_returns(self) -> list[float]:
        """The mean returns of those iterations, oldest first."""
        return list(self._recent)

    def numbers(self) -> Numbers:
        """The returns so far, for a checkpoint."""
        numbers = Numbers(recent_returns=self.recent_returns)
        if self.member_returns:
            numbers["members"] = [list(returns) for returns in self.member_returns]
        return numbers

    def go_on_from(
        self,
        iterations: int,
        parameters: Mapping[str, np.ndarray],
        recent_returns: Iterable[float],
        members: Iterable[Iterable[float]] = (),
    ) -> None:
        """Continue the numbers of a checkpoint."""
        for returns, recent in zip(self.member_returns, members, strict=False):
            returns.extend(recent)
        self.iterations, self.latest = iterations, dict(parameters)
        self._recent.extend(recent_returns)

    def finished(self, iteration: int, metrics: Mapping[str, np.ndarray], parameters: Mapping[str, np.ndarray]) -> None:
        """Log, check and show one iteration. After an iteration that was not finite, values that still arrive are ignored."""
        if self._stopped:
            return
        mend()  # before a file of ours can take the number of a stream that the environment closed
        if self.member_returns:
            metrics, parameters = self._of_members(iteration, metrics, parameters)
        row: Row = {"iteration": iteration, "env_steps": (iteration + 1) * self._steps}
        row = {**row, **{name: float(value) for name, value in metrics.items()}}
        for logger in self._loggers:
            logger.log(row)
        self._require_finite(iteration, row, parameters)
        self.iterations, self.latest = iteration + 1, {name: np.array(value) for name, value in parameters.items()}
        value = row.get("episodic_return", np.nan)
        if np.isfinite(value):
            self._recent.append(value)
        self.times.append(time.perf_counter())
        self._show(row)
        numbers = {name: float(row[name]) for name in metrics}
        for callback in self._callbacks:
            parameters = {name: value.copy() for name, value in self.latest.items()}  # a callback may write into them
            if callback(Iteration(iteration, self.env_steps, dict(numbers), parameters)):
                self.stop_requested = True

    def _of_members(self, iteration: int, metrics: Arrays, parameters: Arrays) -> tuple[Arrays, Arrays]:
        """Log each member, and give the means of the metrics, with the 95 % interval of the return, and the parameters of all.

        A member that diverged is left out of the means, and keeps its last finite parameters.
        """
        mine = {name: np.array(value) for name, value in parameters.items()}
        for member, returns in enumerate(self.member_returns):
            row = {name: float(value[member]) for name, value in metrics.items()}
            is_finite = np.isfinite(row["loss"]) and all(np.isfinite(value[member]).all() for value in mine.values())
            if not is_finite:
                self.diverged.setdefault(member, iteration)
            if member in self.diverged:
                for name, value in mine.items():
                    value[member] = 0.0 if self.latest is None else self.latest[name][member]
            elif np.isfinite(row.get("episodic_return", np.nan)):
                returns.append(row["episodic_return"])
            if self.member_loggers:
                self.member_loggers[member].log({"iteration": iteration, "env_steps": (iteration + 1) * self._steps, **row})
        good = [member for member in range(len(self.member_returns)) if member not in self.diverged]
        means = {name: interval(value[good]) for name, value in metrics.items()}
        numbers = {name: np.asarray(mean) for name, (mean, _) in means.items()}
        if "episodic_return" in means:
            numbers["episodic_return_interval"] = np.asarray(means["episodic_return"][1])
        return numbers, mine

    def _require_finite(self, iteration: int, row: Row, parameters: Mapping[str, np.ndarray]) -> None:
        problems = [] if np.isfinite(row["loss"]) else [f"the loss is {row['loss']}"]
        problems += [f"the parameter {name} is not finite" for name, value in parameters.items() if not np.isfinite(value).all()]
        if not problems:
            return
        self._stopped = True
        raise DivergenceError(
            f"training diverged in iteration {iteration} (counted from 0): {problems[0]}",
            hint=f"metrics.csv shows where it began; {lower(self.recipe)}",
        )

"""The parts that agents share: the program for training, its environments, the metrics of episodes, the report to the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

import tempo_core as tp
from tempo_rl.env.program import ProgramEnvironment
from tempo_rl.env.transition import Transition
from tempo_rl.models import ActorCritic
from tempo_rl.normalizer import Normalizer
from tempo_rl.recipe import Recipe

Arrays = Mapping[str, np.ndarray]
Tensors = Mapping[str, tp.Tensor]
ITERATION = "i"  # the step of iterations
MOST = 2**30  # iterations of a run
Rollout = tuple[tp.Expr | slice, ...]  # one index per step: all environments and all times of one iteration


class Monitor(Protocol):
    """The receiver of an agent's values on the host. It is called once per iteration, in order, with the parameters at its end."""

    def finished(self, iteration: int, metrics: Arrays, parameters: Arrays) -> None: ...


@dataclass(frozen=True)
class Agent:
    """A recurrent program that learns: compile `context` with `bounds` and run it; it calls the monitor after each iteration."""

    context: tp.Context
    bounds: dict[tp.Expr, int]
    environment: ProgramEnvironment
    model: ActorCritic

    def compile(self, config: tp.Config | None = None) -> tp.Program:
        """The compiled program. It has no outputs: its values leave through its sinks."""
        return self.context.compile(self.bounds, outputs=[], config=config)

    @property
    def iterations(self) -> dict[tp.Expr, int]:
        """The number of iterations, by the bound of their step; empty if no step is called i."""
        names = [str(step.bound) for step in self.context.steps if step.name == ITERATION]
        return {bound: number for bound, number in self.bounds.items() if str(bound) in names}

    def chosen(self, program: tp.Program) -> dict[tp.Expr, int]:
        """The bounds of `iterations` that a run of the program chooses."""
        return {bound: number for bound, number in self.iterations.items() if str(bound) in map(str, program.limits)}

    def compile_for_runs(self, config: tp.Config) -> tp.Program:
        """The compiled program, of which each run chooses the number of iterations: `program.start(bounds=agent.chosen(program))`.

        So a run goes on with more iterations than it was begun with. A program that keeps values of all iterations, or has no step `i`, is
        compiled for its own number.
        """
        if not self.iterations:
            return self.compile(config)
        disable = (*config.disable, f"vectorize({ITERATION})", "capacities")  # nothing is computed or kept for all iterations
        limits = dict.fromkeys(self.iterations, tp.upto(MOST))
        try:
            program = self.context.compile({**self.bounds, **limits}, outputs=[], config=replace(config, disable=disable))
        except (
            tp.errors.TempoError
        ):  # it is too large with so many iterations, or needs their number; or `compile` says what is wrong
            return self.compile(config)
        return self.compile(config) if program.plan().bytes > MOST else program


def episode_metrics(step: Transition[tp.Tensor], over: Rollout) -> dict[str, tp.Tensor]:
    """Mean return and length of the episodes that ended in `over` (one index per step), and their number; NaN if none ended."""
    ended = (step.terminated | step.truncated).astype("float32")
    count = ended[over].sum()

    def mean(x: tp.Tensor) -> tp.Tensor:
        return tp.where(count > 0.0, (x * ended)[over].sum() / tp.maximum(count, 1.0), float("nan"))

    return {
        "episodic_return": mean(step.episode_return),
        "episodic_length": mean(step.episode_length.astype("float32")),
        "episodes": count,
    }


def learned_from(
    recipe: Recipe, step: Transition[tp.Tensor], point: Sequence[tp.Expr], kept: Sequence[tp.Expr], over: Rollout
) -> Transition[tp.Tensor]:
    """The step with the reward that agents learn from in the iteration that acted: see `scaling_of_rewards`."""
    return step._replace(reward=scaling_of_rewards(recipe, step, point, kept, over)(step.reward))


def scaling_of_rewards(
    recipe: Recipe, step: Transition[tp.Tensor], point: Sequence[tp.Expr], kept: Sequence[tp.Expr], over: Rollout
) -> Callable[[tp.Tensor], tp.Tensor]:
    """What scales rewards where agents learn from them: by the running deviation of discounted returns, if the recipe says so.

    The deviation is that of the iteration that learns, not of the one that acted. `point` is (b, i, t), and `over` has a slice for each step
    but i; returns begin anew with `kept`, as episodes do.
    """
    if not recipe.norm_reward:
        return lambda reward: reward
    (i,) = (index for index in over if isinstance(index, tp.Expr))
    before = tp.recurrence((), domain=tuple(point), name="discounted return")
    current = before * recipe.gamma + step.reward
    tp.carry(before, 0.0, tp.where(step.terminated | step.truncated, 0.0, current), kept=tuple(kept))
    normalizer = Normalizer.build("return", (), (i,))
    normalizer.follow(current[over])
    return normalizer.scaled


def followed(model: ActorCritic, obs: tp.Tensor, over: Rollout) -> dict[str, tp.Tensor]:
    """The statistics of observations after the rollout `over`, by name, if the model normalises them."""
    return {} if model.normalizer is None else model.normalizer.follow(obs[over])


def report(monitor: Monitor, metrics: Tensors, parameters: Tensors) -> None:
    """Hand an iteration's metrics and final parameters to the monitor, through one sink: values leave the device once."""
    names = [*metrics, *parameters]

    def finished(*values: np.ndarray, i: int) -> None:
        arrays = {name: np.asarray(value) for name, value in zip(names, values, strict=True)}
        monitor.finished(int(i), {k: arrays[k] for k in metrics}, {k: arrays[k] for k in parameters})

    finished.takes_copies = True  # type: ignore[attr-defined]
    tp.sink(finished, *metrics.values(), *parameters.values(), name="report")

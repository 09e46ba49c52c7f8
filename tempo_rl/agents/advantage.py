"""Estimates of advantages and returns over a rollout. They depend on how each episode ended.

All tensors have the domain `point` = (b, i, t) and are scalars. `next_value` is the value of the true successor state
(`Transition.final_observation`): a truncated episode bootstraps from it, a terminated one does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import tempo_core as tp
from tempo_core.typing import IntoExpr
from tempo_rl.env.transition import Transition

Point = tuple[tp.Expr, tp.Expr, tp.Expr]  # (b, i, t): environment, iteration, time


def generalized_advantage(
    step: Transition[tp.Tensor], value: tp.Tensor, next_value: tp.Tensor, gamma: float, gae_lambda: float, point: Point
) -> tp.Tensor:
    """Generalized advantage estimation (Schulman et al., 2015, arXiv:1506.02438, equation 16), over rollouts of T steps."""
    b, i, t = point
    T = _bound(t)
    done = step.terminated | step.truncated
    delta = step.reward + gamma * tp.where(step.terminated, 0.0, next_value) - value
    decay = tp.where(done, 0.0, gamma * gae_lambda)
    advantage = tp.recurrence((), domain=point, name="advantage")
    advantage[b, i, T - 1] = delta[b, i, T - 1]
    advantage[b, i, t] = delta + decay * advantage[b, i, t + 1]
    return advantage


def bootstrapped_return(step: Transition[tp.Tensor], next_value: tp.Tensor, gamma: float, point: Point) -> tp.Tensor:
    """The discounted rewards up to the end of the episode or of the rollout, plus the discounted value of the state after it.

    That value is 0 where the episode terminated.
    """
    b, i, t = point
    T = _bound(t)
    ending = step.reward + gamma * tp.where(step.terminated, 0.0, next_value)
    target = tp.recurrence((), domain=point, name="target")
    target[b, i, T - 1] = ending[b, i, T - 1]
    target[b, i, t] = tp.where(step.terminated | step.truncated, ending, step.reward + gamma * target[b, i, t + 1])
    return target


def n_step_return(step: Transition[tp.Tensor], next_value: tp.Tensor, gamma: float, n: int, point: Point) -> tp.Tensor:
    """The discounted rewards of `n` steps, or of fewer up to the end of the episode or of the rollout, plus the value of the state after them."""
    window = NStepWindow.of(step, n, point, point[2])
    is_last = window(step.terminated | step.truncated) | window.is_at_end
    after = tp.where(window(step.terminated), 0.0, window(next_value))
    return window.discounted(step.reward, gamma, gamma * tp.where(is_last, after, 0.0))


@dataclass(frozen=True)
class NStepWindow:
    """The next `n` steps as `[t : min(t + n, T)]`, of which those count that belong to the episode of the first."""

    point: tuple[tp.Expr, ...]
    t: tp.Expr
    end: tp.Expr
    belongs: tp.Tensor  # (end - t,)

    @staticmethod
    def of(step: Transition[tp.Tensor], n: int, point: tuple[tp.Expr, ...], t: tp.Expr) -> NStepWindow:
        """The window at `point`, whose step of time is `t`."""
        episode = tp.recurrence((), "int32", domain=point, name="episode of the rollout")
        ended = (step.terminated | step.truncated).astype("int32")
        tp.carry(episode, 0, episode + ended, kept=[each for each in point if each is not t])
        window = NStepWindow(point, t, tp.min(t + n, _bound(t)), episode)
        return replace(window, belongs=window(episode) == episode)

    def __call__(self, x: tp.Tensor) -> tp.Tensor:
        """The values (end - t, ...) of `x` in the window."""
        return x[tuple(slice(self.t, self.end) if each is self.t else each for each in self.point)]

    @property
    def is_at_end(self) -> tp.Tensor:
        """Whether each step is the last one of the window, (end - t,)."""
        size = self.end - self.t
        return tp.arange(size) == size - 1

    def discounted(self, x: tp.Tensor, gamma: float, more: tp.Tensor) -> tp.Tensor:
        """The discounted sum of `x`, and of `more` (end - t,) in the window, over the steps that count."""
        return tp.where(self.belongs, self(x) + more, 0.0).discounted_sum(gamma)


def _bound(t: tp.Expr) -> IntoExpr:
    """The bound T of a step t."""
    (step,) = t.steps
    return step.bound_expr

"""Estimates of advantages and returns over a rollout. They depend on how each episode ended.

All tensors have the domain `point` = (b, i, t) and are scalars. `next_value` is the value of the true successor state
(`Transition.final_observation`): a truncated episode bootstraps from it, a terminated one does not.
"""

from __future__ import annotations

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


def _bound(t: tp.Expr) -> IntoExpr:
    """The bound T of a step t."""
    (step,) = t.steps
    return step.bound_expr

"""What a rollout's end leaves to estimate: advantages and returns that know how each episode ended.

All arguments are tensors over `point` = (b, i, t), scalars at each. `next_value` is the value of the true successor state
(`Transition.final_observation`): a truncated episode bootstraps from it, a terminated one does not.
"""

from __future__ import annotations

from typing import Any

import tempo_core as tp
from tempo_rl.env.transition import Transition


def generalized_advantage(
    step: Transition, value: Any, next_value: Any, gamma: float, gae_lambda: float, point: tuple[Any, ...]
) -> Any:
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


def bootstrapped_return(step: Transition, next_value: Any, gamma: float, point: tuple[Any, ...]) -> Any:
    """The discounted rewards up to the end of the episode or of the rollout, then the value of where that led."""
    b, i, t = point
    T = _bound(t)
    ending = step.reward + gamma * tp.where(step.terminated, 0.0, next_value)
    target = tp.recurrence((), domain=point, name="target")
    target[b, i, T - 1] = ending[b, i, T - 1]
    target[b, i, t] = tp.where(step.terminated | step.truncated, ending, step.reward + gamma * target[b, i, t + 1])
    return target


def _bound(step: Any) -> Any:
    """The bound T of a step t."""
    return step.single_atom.bound_expr

"""Programs that several tests compile."""

from __future__ import annotations

from typing import Any

import tempo_core as tp


def step_environment(obs: Any, action: Any) -> Any:
    """A small differentiable environment, as a JAX function: (next observation, reward)."""
    import jax.numpy as jnp

    moved = jnp.sin(obs + 0.1 * action.astype(obs.dtype))
    return moved, -(moved**2).sum()


def reinforce(window: int | None, learning_rate: float = 1e-2) -> tuple[tp.Context, dict[Any, int], list[Any]]:
    """REINFORCE (alg. 1 of the paper) with Monte Carlo returns, or n-step returns over `window` rewards."""
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        policy = tp.nn.Linear(4, 2, domain=(i,), gain=0.1, name="policy")
        obs = tp.recurrence((4,), domain=(b, i, t), name="obs")
        obs[b, i, 0] = tp.random.normal((4,), domain=(b, i))
        logits = policy(obs)
        action = tp.random.categorical(logits).named("action")
        next_obs, reward = tp.udf(step_environment, obs, action, outputs=[tp.spec((4,)), tp.spec()], name="env")
        obs[b, i, t + 1] = next_obs
        rewards = reward[b, i, t:T] if window is None else reward[b, i, t : tp.min(t + window, T)]
        returns = rewards.discounted_sum(0.95)
        log_prob = (logits.log_softmax(-1) * action.one_hot(2)).sum(-1)
        loss = (-log_prob * returns).named("loss")[0:B, i, 0:T].mean()
        loss.backward()
        tp.optim.SGD(policy.parameters(), lr=learning_rate * (0.99**i)).step()
    return ctx, {B: 4, I: 3, T: 20}, [loss]

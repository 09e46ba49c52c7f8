"""Deep Q-learning (Mnih et al., 2015, Nature 518), with double Q-learning (van Hasselt et al., 2016, arXiv:1509.06461).

Steps: i iterations, t rollout time, b environments, u updates. The replay buffer is a window of the past: updates draw rows
of the last iterations, and what is older is not kept. The target network is a recurrence over i, which is copied now and then.
"""

from __future__ import annotations

from dataclasses import replace

import tempo_core as tp
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, report, scaling_of_rewards
from tempo_rl.agents.priorities import Priorities
from tempo_rl.agents.replay import Replay
from tempo_rl.agents.schedules import exploration, rate
from tempo_rl.env import make_environment
from tempo_rl.models import ActionValues, build_model
from tempo_rl.recipe import DQNRecipe


def dqn(recipe: DQNRecipe, monitor: Monitor) -> Agent:
    """The program of a DQN recipe."""
    ctx = tp.Context("i", "t", "b", "u")
    with ctx as ((i, I), (t, T), (b, B), (u, U)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i, u))
        assert isinstance(model, ActionValues)

        # Acting, with the parameters from the start of an iteration. Episodes go on from one iteration to the next.
        epsilon = exploration(recipe, i, I)
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(i, t, b), name="obs")
        action = replace(model[i, 0], epsilon=epsilon).policy(obs).sample().detach()
        first = env.reset(domain=(b,))
        step = env.step(action)
        tp.carry(obs, first, step.observation, kept=(b,))
        rollout = (i, slice(0, T), slice(0, B))
        scaled = scaling_of_rewards(recipe, step, (i, t, b), (b,), rollout)

        # The replay buffer: rows of the last iterations, drawn anew for each update.
        priorities = Priorities(recipe, (i, u), I) if recipe.prioritized else None
        replayed = Replay.of(recipe, env.observations, i, (T, B), (i, u), priorities)

        # Learning: a truncated episode bootstraps from its final observation, a terminated one does not.
        target = {
            name: tp.recurrence(w.shape, w.dtype, domain=(i,), name=f"target.{name}") for name, w in model.parameters().items()
        }
        ahead, reward = None, scaled(replayed(step.reward))
        discount: tp.Tensor | float = recipe.gamma
        if recipe.n_step > 1:
            steps = replayed.steps(recipe.n_step, step.terminated | step.truncated)
            ahead, reward = steps.count - 1, steps.discounted(step.reward, recipe.gamma, scaled)
            discount = recipe.gamma ** steps.count.astype("float32")
        following, weight = replayed.following(obs, step, ahead)
        learns = replayed.learns(weight)
        following_values = model.using(target).values(following)
        chooser = model.values(following) if recipe.double_q else following_values
        best = tp.take_along_last(following_values, chooser.argmax(-1))
        aim = reward + discount * tp.where(replayed(step.terminated, ahead), 0.0, best)
        value = tp.take_along_last(model.values(replayed.observed(obs, step)), replayed(action))
        error = value - aim.detach()
        if priorities is not None:
            weight = weight * priorities.weights
            priorities.follow(error.detach(), learns)
        loss = (weight * huber(error, recipe.huber_delta)).mean()
        loss.backward()
        learning_rate = rate(recipe, recipe.learning_rate, i, I)
        optimizer = tp.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-5, max_grad_norm=recipe.max_grad_norm)
        updated = optimizer.step(where=learns)
        at_end = {name: w[i, U - 1] for name, w in updated.items()}
        for name, w in target.items():
            closer = w + recipe.tau * (at_end[name] - w)
            tp.carry(w, model.parameters()[name][0, 0], tp.where((i + 1) % recipe.target_iterations == 0, closer, w))

        metrics = {"loss": loss[i, 0:U].mean(), "value": value.mean()[i, 0:U].mean(), "epsilon": epsilon}
        metrics |= episode_metrics(step, rollout)
        report(monitor, metrics, at_end | followed(model, obs, rollout))
    bounds = {I: recipe.iterations, T: recipe.num_steps, B: recipe.num_envs, U: recipe.gradient_steps}
    return Agent(ctx, bounds, env, model)


def huber(error: tp.Tensor, delta: float) -> tp.Tensor:
    """Half the square of an error, and beyond `delta` a line, so that its gradient is at most `delta` (Huber, 1964)."""
    size = tp.abs(error)
    return tp.where(size <= delta, 0.5 * error * error, delta * (size - 0.5 * delta))

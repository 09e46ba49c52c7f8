"""Soft actor-critic (Haarnoja et al., 2018b, arXiv:1812.05905), with the temperature learned.

Steps: i iterations, t rollout time, b environments, u updates of the policy, c updates of the critics before each of them. The critics and their
targets are recurrences over (i, u, c), the policy and the temperature over (i, u).
"""

from __future__ import annotations

import math

import tempo_core as tp
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, report, scaling_of_rewards
from tempo_rl.agents.exploration import at_random_first, follow, noise_of, targets_of
from tempo_rl.agents.replay import Replay
from tempo_rl.agents.schedules import rate
from tempo_rl.continuous import SquashedPolicy, TwinCritics
from tempo_rl.env import make_environment
from tempo_rl.models import build_model
from tempo_rl.recipe import SACRecipe


def sac(recipe: SACRecipe, monitor: Monitor) -> Agent:
    """The program of a SAC recipe."""
    ctx = tp.Context("i", "t", "b", "u", "c")
    with ctx as ((i, I), (t, T), (b, B), (u, U), (c, C)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i, u))
        assert isinstance(model, SquashedPolicy)
        critics = TwinCritics.build(model, recipe.hidden, (i, u, c), recipe.activation, recipe.convolutions, recipe.embedding)

        # Acting, with the parameters from the start of an iteration. Episodes go on from one iteration to the next.
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(i, t, b), name="obs")
        noise = noise_of(recipe, env.actions.shape, (i, t, b))
        chosen, _ = model[i, 0].gaussian(obs).from_noise(noise)
        action = at_random_first(recipe, chosen, noise, (i, t, b)).detach()
        first = env.reset(domain=(b,))
        step = env.step(action)
        tp.carry(obs, first, step.observation, kept=(b,))
        rollout = (i, slice(0, T), slice(0, B))
        scaled = scaling_of_rewards(recipe, step, (i, t, b), (b,), rollout)

        # The temperature: the weight of the entropy.
        log_alpha = tp.recurrence((), domain=(i, u), name="log_alpha")
        alpha = tp.exp(log_alpha).detach() if recipe.autotune else tp.constant(recipe.alpha)

        # The critics: both estimate the reward, and the lesser target of the next action, with its entropy.
        replayed = Replay.of(recipe, env.observations, i, (T, B), (i, u, c))
        state, (following, weight) = replayed.observed(obs, step), replayed.following(obs, step)
        targets = targets_of(critics.parameters(), (i, u, c))
        next_action, next_log_prob = model.gaussian(following).sample_with_log_prob()
        next_value = tp.minimum(*critics.using(targets)(following, next_action)) - alpha * next_log_prob
        aim = (scaled(replayed(step.reward)) + recipe.gamma * tp.where(replayed(step.terminated), 0.0, next_value)).detach()
        q1, q2 = critics(state, replayed(action))
        q_loss = (weight * ((q1 - aim) ** 2 + (q2 - aim) ** 2)).mean()
        q_loss.backward()
        q_lr = rate(recipe, recipe.q_lr, i, I)
        optimizer = tp.optim.Adam(critics.parameters(), lr=q_lr, max_grad_norm=recipe.max_grad_norm)
        updated_critics = optimizer.step(where=replayed.learns(weight))
        follow(targets, critics.parameters(), updated_critics, recipe.tau)

        # The policy: actions that the critics value, and that are as random as the temperature asks.
        newest = {name: w[i, u, C - 1].detach() for name, w in updated_critics.items()}
        seen = state[i, u, C - 1]
        policy_action, log_prob = model.gaussian(seen).sample_with_log_prob()
        policy_loss = (alpha * log_prob - tp.minimum(*critics.using(newest)(seen, policy_action))).mean()
        policy_loss.backward()
        policy_lr = rate(recipe, recipe.policy_lr, i, I)
        updated = tp.optim.Adam(model.parameters(), lr=policy_lr, max_grad_norm=recipe.max_grad_norm).step(
            where=replayed.has_started
        )
        if recipe.autotune:
            tp.carry(log_alpha, 0.0)
            target_entropy = -float(math.prod(env.actions.shape))
            alpha_loss = (-tp.exp(log_alpha) * (log_prob.detach() + target_entropy)).mean()
            alpha_loss.backward()
            updated |= tp.optim.Adam({"log_alpha": log_alpha}, lr=q_lr).step(where=replayed.has_started)

        metrics = {"loss": q_loss[i, 0:U, 0:C].mean(), "value": q1.mean()[i, 0:U, 0:C].mean()}
        metrics |= {"policy_loss": policy_loss[i, 0:U].mean(), "entropy": -log_prob.mean()[i, 0:U].mean()}
        metrics |= {"alpha": alpha[i, U - 1] if recipe.autotune else alpha} | episode_metrics(step, rollout)
        at_end = {name: w[i, U - 1] for name, w in updated.items()} | {n: w[i, U - 1] for n, w in newest.items()}
        report(monitor, metrics, at_end | followed(model, obs, rollout))
    bounds = {I: recipe.iterations, T: recipe.num_steps, B: recipe.num_envs, U: recipe.policy_updates, C: recipe.policy_frequency}
    return Agent(ctx, bounds, env, model)

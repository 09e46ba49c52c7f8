"""Twin delayed deep deterministic policy gradient, TD3 (Fujimoto et al., 2018, arXiv:1802.09477).

Steps: i iterations, t rollout time, b environments, u updates of the policy, c updates of the critics before each of them. The delay is a matter of
domains: the critics are recurrences over (i, u, c), the policy and all targets over (i, u).
"""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, report, scaling_of_rewards
from tempo_rl.agents.exploration import at_random_first, follow, noise_of, targets_of
from tempo_rl.agents.replay import Replay
from tempo_rl.agents.schedules import rate
from tempo_rl.continuous import DeterministicPolicy, TwinCritics
from tempo_rl.env import make_environment
from tempo_rl.models import build_model
from tempo_rl.recipe import TD3Recipe


def td3(recipe: TD3Recipe, monitor: Monitor) -> Agent:
    """The program of a TD3 recipe."""
    ctx = tp.Context("i", "t", "b", "u", "c")
    with ctx as ((i, I), (t, T), (b, B), (u, U), (c, C)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i, u))
        assert isinstance(model, DeterministicPolicy)
        critics = TwinCritics.build(model, recipe.hidden, (i, u, c), recipe.activation, recipe.convolutions, recipe.embedding)

        # Acting, with the parameters from the start of an iteration, and noise. Episodes go on from one iteration to the next.
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(i, t, b), name="obs")
        noise = noise_of(recipe, env.actions.shape, (i, t, b))
        chosen = tp.clip(model[i, 0].action(obs) + recipe.exploration_noise * noise, -1.0, 1.0)
        action = at_random_first(recipe, chosen, noise, (i, t, b)).detach()
        first = env.reset(domain=(b,))
        step = env.step(action)
        tp.carry(obs, first, step.observation, kept=(b,))
        rollout = (i, slice(0, T), slice(0, B))
        scaled = scaling_of_rewards(recipe, step, (i, t, b), (b,), rollout)

        # The critics: both estimate the reward, and the lesser target of an action near the target policy's.
        replayed = Replay.of(recipe, env.observations, i, (T, B), (i, u, c))
        state, (following, weight) = replayed.observed(obs, step), replayed.following(obs, step)
        targets = targets_of(model.parameters() | critics.parameters(), (i, u))
        smoothing = tp.random.normal((recipe.batch_size, *env.actions.shape), domain=(i, u, c)) * recipe.policy_noise
        near = model.using(targets).action(following) + tp.clip(smoothing, -recipe.noise_clip, recipe.noise_clip)
        next_value = tp.minimum(*critics.using(targets)(following, tp.clip(near, -1.0, 1.0)))
        aim = (scaled(replayed(step.reward)) + recipe.gamma * tp.where(replayed(step.terminated), 0.0, next_value)).detach()
        q1, q2 = critics(state, replayed(action))
        q_loss = (weight * ((q1 - aim) ** 2 + (q2 - aim) ** 2)).mean()
        q_loss.backward()
        q_lr = rate(recipe, recipe.q_lr, i, I)
        optimizer = tp.optim.Adam(critics.parameters(), lr=q_lr, max_grad_norm=recipe.max_grad_norm)
        updated_critics = optimizer.step(where=replayed.learns(weight))

        # The policy: the action that the first critic values most. All targets follow after it.
        newest = {name: w[i, u, C - 1].detach() for name, w in updated_critics.items()}
        seen = state[i, u, C - 1]
        policy_loss = -critics.using(newest)(seen, model.action(seen))[0].mean()
        policy_loss.backward()
        policy_lr = rate(recipe, recipe.policy_lr, i, I)
        optimizer = tp.optim.Adam(model.parameters(), lr=policy_lr, max_grad_norm=recipe.max_grad_norm)
        updated = optimizer.step(where=replayed.has_started) | newest
        follow(targets, model.parameters() | critics.parameters(), updated, recipe.tau)

        metrics = {"loss": q_loss[i, 0:U, 0:C].mean(), "value": q1.mean()[i, 0:U, 0:C].mean()}
        metrics |= {"policy_loss": policy_loss[i, 0:U].mean()} | episode_metrics(step, rollout)
        report(monitor, metrics, {name: w[i, U - 1] for name, w in updated.items()} | followed(model, obs, rollout))
    bounds = {I: recipe.iterations, T: recipe.num_steps, B: recipe.num_envs, U: recipe.policy_updates, C: recipe.policy_frequency}
    return Agent(ctx, bounds, env, model)

"""REINFORCE (Williams, 1992): every iteration plays T steps in fresh episodes, then follows the gradient of log-probabilities.

With a baseline, actions are weighted by how much better the return was than its estimate, which is learned beside the policy.
"""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.agents.advantage import bootstrapped_return
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, learned_from, report
from tempo_rl.agents.schedules import rate, scheduled
from tempo_rl.env import make_environment
from tempo_rl.models import build_model
from tempo_rl.recipe import ReinforceRecipe


def reinforce(recipe: ReinforceRecipe, monitor: Monitor) -> Agent:
    """The program of a REINFORCE recipe. Steps: b environments, i iterations, t time.

    A return ends with its episode. If an episode is truncated, or still runs at T, its return counts the rewards up to that point; with a
    baseline, also its value of the state there, as with the other agents.
    """
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i,), critic=recipe.baseline)

        first = env.reset(domain=(b, i))
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(b, i, t), name="obs")
        policy = model.policy(obs)
        action = policy.sample().detach()
        step = env.step(action, restarts=not env.never_ends_within(recipe.num_steps))
        tp.carry(obs, first, step.observation, kept=(b, i))

        rollout = (slice(0, B), i, slice(0, T))
        learned = learned_from(recipe, step, (b, i, t), (b, i), rollout)
        ahead = model.value(step.final_observation).detach() if recipe.baseline else tp.zeros(())
        returns = bootstrapped_return(learned, ahead, recipe.gamma, (b, i, t))

        weight = returns.detach()
        if recipe.baseline:
            error = returns.detach() - model.value(obs)
            weight = error.detach()
        if recipe.norm_returns:
            played = weight[rollout]
            mean = played.mean()
            weight = (weight - mean) / (tp.sqrt(((played - mean) ** 2).mean()) + 1e-8)
        entropy = policy.entropy()[rollout].mean()
        policy_loss = -(policy.log_prob(action) * weight)[rollout].mean()
        loss = policy_loss - scheduled(recipe, recipe.ent_coef, i, I) * entropy
        metrics = {"policy_loss": policy_loss, "entropy": entropy}
        if recipe.baseline:
            metrics["value_loss"] = 0.5 * (error * error)[rollout].mean()
            loss = loss + recipe.vf_coef * metrics["value_loss"]
        loss.backward()
        learning_rate = rate(recipe, recipe.learning_rate, i, I)
        updated = tp.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-5, max_grad_norm=recipe.max_grad_norm).step()

        metrics = {"loss": loss} | metrics | episode_metrics(step, rollout)
        report(monitor, metrics, updated | followed(model, obs, rollout))
    return Agent(ctx, {B: recipe.num_envs, I: recipe.iterations, T: recipe.num_steps}, env, model)

"""N-step advantage actor-critic (Mnih et al., 2016, arXiv:1602.01783), synchronous: one update per rollout of T steps."""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.agents.advantage import bootstrapped_return, generalized_advantage, n_step_return
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, learned_from, report
from tempo_rl.agents.schedules import rate, scheduled
from tempo_rl.env import make_environment
from tempo_rl.models import build_model
from tempo_rl.recipe import ActorCriticRecipe


def actor_critic(recipe: ActorCriticRecipe, monitor: Monitor) -> Agent:
    """The program of an actor-critic recipe. Steps: b environments, i iterations, t rollout time."""
    ctx = tp.Context("b", "i", "t")
    with ctx as ((b, B), (i, I), (t, T)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i,))

        first = env.reset(domain=(b,))
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(b, i, t), name="obs")
        policy, value = model.policy(obs), model.value(obs)
        action = policy.sample().detach()
        step = env.step(action)
        tp.carry(obs, first, step.observation, kept=(b,))

        rollout = (slice(0, B), i, slice(0, T))
        learned = learned_from(recipe, step, (b, i, t), (b,), rollout)
        next_value = model.value(step.final_observation).detach()
        if recipe.n_step is not None:
            target = n_step_return(learned, next_value, recipe.gamma, recipe.n_step, (b, i, t))
        elif recipe.gae_lambda < 1.0:
            estimate = value.detach()
            target = generalized_advantage(learned, estimate, next_value, recipe.gamma, recipe.gae_lambda, (b, i, t)) + estimate
        else:
            target = bootstrapped_return(learned, next_value, recipe.gamma, (b, i, t))
        advantage = target.detach() - value
        policy_loss = -policy.log_prob(action) * advantage.detach()
        per_step = {"policy_loss": policy_loss, "value_loss": 0.5 * advantage**2, "entropy": policy.entropy()}
        metrics = {name: x[rollout].mean() for name, x in per_step.items()}
        loss = (
            metrics["policy_loss"]
            + recipe.vf_coef * metrics["value_loss"]
            - scheduled(recipe, recipe.ent_coef, i, I) * metrics["entropy"]
        )
        loss.backward()
        learning_rate = rate(recipe, recipe.learning_rate, i, I)
        updated = tp.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-5, max_grad_norm=recipe.max_grad_norm).step()

        metrics = {"loss": loss} | metrics | episode_metrics(step, rollout)
        report(monitor, metrics, updated | followed(model, obs, rollout))
    return Agent(ctx, {B: recipe.num_envs, I: recipe.iterations, T: recipe.num_steps}, env, model)

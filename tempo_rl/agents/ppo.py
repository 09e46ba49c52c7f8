"""Proximal policy optimization (Schulman et al., 2017, arXiv:1707.06347) as one recurrent program.

Steps: b environments, i iterations, t rollout time, e epochs, m minibatches. The parameters are a recurrence over
(i, e, m): acting reads the parameters from the start of an iteration; learning reads and updates the latest ones.

With a memory (network gru or lstm), the state of the memory is one more recurrence over (b, i, t), which begins anew with each episode. A
minibatch has whole sequences then: each update runs the memory over them again, and gradients flow back through time. With attention, a step
reads the keys and values of its episode's last steps in the rollout, as a slice of time: the same expression in acting and in learning.
"""

from __future__ import annotations

import tempo_core as tp
from tempo_rl.agents.advantage import generalized_advantage
from tempo_rl.agents.base import Agent, Monitor, episode_metrics, followed, learned_from, report
from tempo_rl.agents.schedules import rate, scheduled
from tempo_rl.attention import Attention
from tempo_rl.env import make_environment
from tempo_rl.models import ActorCritic, build_model
from tempo_rl.recipe import PPORecipe


def ppo(recipe: PPORecipe, monitor: Monitor) -> Agent:
    """The program of a PPO recipe."""
    ctx = tp.Context("b", "i", "t", "e", "m")
    with ctx as ((b, B), (i, I), (t, T), (e, E), (m, M)):
        env = make_environment(recipe, batch=(b, B))
        model = build_model(recipe, env.observations, env.actions, domain=(i, e, m))
        actor = model[i, 0, 0]

        # Acting: rollouts go on from one iteration to the next, unless each begins with fresh episodes.
        start = (b, i) if recipe.fresh_episodes else (b,)
        first = env.reset(domain=start)
        obs = tp.recurrence(env.observations.shape, env.observations.dtype, domain=(b, i, t), name="obs")
        cells = {} if isinstance(model.memory, Attention) else model.states
        states = [tp.recurrence((n,), domain=(b, i, t), name=name) for name, n in cells.items()]
        episode = tp.recurrence((), "int32", domain=(b, i, t), name="episode of the rollout")
        features = actor.features(obs)
        after = actor.remembered(features, states) if states else ()
        seen = after[0] if states else features
        if isinstance(actor.memory, Attention):
            seen = actor.memory(features, episode, t)
        policy, value = actor.policy_of(seen), actor.value_of(seen)
        action = policy.sample()
        log_prob = policy.log_prob(action)
        ends_with_rollout = recipe.fresh_episodes and env.never_ends_within(recipe.num_steps)
        step = env.step(action, restarts=not ends_with_rollout)
        tp.carry(obs, first, step.observation, kept=start)
        done = step.terminated | step.truncated
        for state, following in zip(states, after, strict=True):
            tp.carry(state, 0.0, tp.where(done, 0.0, following), kept=start)

        # Advantages: a truncated episode bootstraps from its final observation, a terminated one does not.
        final = actor.features(step.final_observation)
        if states:
            final, *_ = actor.remembered(final, after)
        if isinstance(actor.memory, Attention):
            final = actor.memory.after(final, features, episode, t)
            tp.carry(episode, 0, episode + done.astype("int32"), kept=(b, i))
        next_value = actor.value_of(final)
        if ends_with_rollout:
            next_value = values_after(value, next_value, (b, i, t), T)
        rollout = (slice(0, B), i, slice(0, T))
        within = step._replace(terminated=tp.constant(False), truncated=tp.constant(False)) if ends_with_rollout else step
        learned = learned_from(recipe, within, (b, i, t), start, rollout)
        advantage = generalized_advantage(learned, value, next_value, recipe.gamma, recipe.gae_lambda, (b, i, t))
        returns = advantage + value

        # Learning: every epoch goes through the rollouts in a new order, a minibatch at a time.
        sequential = model.memory is not None
        size = recipe.num_envs // recipe.num_minibatches if sequential else recipe.minibatch_size
        order = tp.random.permutation(B if sequential else B * T, domain=(i, e))
        rows = order.spatial[m * size : m * size + size]

        def minibatch(x: tp.Tensor) -> tp.Tensor:
            if recipe.num_minibatches == 1:
                return x[0:B, i, 0:T].detach()  # all rows: their order does not matter
            if sequential:
                return x[0:B, i, 0:T].take(rows, axis=0).detach()
            return x[0:B, i, 0:T].reshape(B * T, *x.shape).take(rows, axis=0).detach()

        batch_advantage = minibatch(advantage)
        if recipe.norm_adv:
            centred = batch_advantage - batch_advantage.mean()
            batch_advantage = centred / (tp.sqrt((centred * centred).mean()) + 1e-8)
        batch_seen = model.features(minibatch(obs))
        if states:
            batch_seen = sequences(model, batch_seen, minibatch(done), [minibatch(s) for s in states], (i, t, e, m), T)
        if isinstance(model.memory, Attention):
            attended = model.memory(batch_seen.index(1, t), minibatch(episode).index(1, t), t)
            batch_seen = tp.moveaxis(attended[i, 0:T, e, m], 0, 1)
        batch_policy, batch_value = model.policy_of(batch_seen), model.value_of(batch_seen)
        log_ratio = batch_policy.log_prob(minibatch(action)) - minibatch(log_prob)
        ratio = tp.exp(log_ratio)
        clip_coef = scheduled(recipe, recipe.clip_coef, i, I)
        clipped = tp.clip(ratio, 1.0 - clip_coef, 1.0 + clip_coef)
        policy_loss = tp.maximum(-batch_advantage * ratio, -batch_advantage * clipped).mean()

        target = minibatch(returns)
        error = (batch_value - target) ** 2
        if recipe.clip_vloss:
            old = minibatch(value)
            near = old + tp.clip(batch_value - old, -clip_coef, clip_coef)
            error = tp.maximum(error, (near - target) ** 2)
        value_loss = 0.5 * error.mean()

        entropy = batch_policy.entropy().mean()
        loss = policy_loss - scheduled(recipe, recipe.ent_coef, i, I) * entropy + recipe.vf_coef * value_loss
        loss.backward()
        learning_rate = rate(recipe, recipe.learning_rate, i, I)
        is_near = None
        if recipe.target_kl is not None:
            is_near = going_on(((ratio - 1.0) - log_ratio).mean(), recipe.target_kl, (i, e, m))
        optimizer = tp.optim.Adam(model.parameters(), lr=learning_rate, eps=1e-5, max_grad_norm=recipe.max_grad_norm)
        updated = optimizer.step(where=is_near)

        # Reporting, once an iteration.
        clipfrac = (tp.abs(ratio - 1.0) > clip_coef).astype("float32").mean()
        approx_kl = ((ratio - 1.0) - log_ratio).mean()
        updates = {
            "loss": loss,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": approx_kl,
            "clipfrac": clipfrac,
        }
        metrics = {name: x[i, 0:E, 0:M].mean() for name, x in updates.items()}
        metrics["explained_variance"] = explained_variance(value[rollout], returns[rollout])
        metrics["learning_rate"] = learning_rate + tp.zeros(()) * i
        metrics |= episode_metrics(step, (slice(0, B), i, slice(T - 1, T)) if ends_with_rollout else rollout)
        statistics = followed(model, obs, rollout)
        report(monitor, metrics, {name: w[i, E - 1, M - 1] for name, w in updated.items()} | statistics)

    bounds = {
        B: recipe.num_envs,
        I: recipe.iterations,
        T: recipe.num_steps,
        E: recipe.update_epochs,
        M: recipe.num_minibatches,
    }
    return Agent(ctx, bounds, env, model)


def sequences(
    model: ActorCritic,
    features: tp.Tensor,
    done: tp.Tensor,
    states: list[tp.Tensor],
    point: tuple[tp.Expr, tp.Expr, tp.Expr, tp.Expr],
    T: tp.Expr,
) -> tp.Tensor:
    """What is remembered [envs, T, width] when the memory runs over sequences [envs, T, ...] again, from the states at their start."""
    i, t, e, m = point
    before = [tp.recurrence(s.spatial[:, 0].shape, domain=point, name=f"replayed {s.name}") for s in states]
    after = model.remembered(features.index(1, t), before)
    ended = done.index(1, t).expand_dims(-1)
    for now, state, following in zip(before, states, after, strict=True):
        tp.carry(now, state.spatial[:, 0], tp.where(ended, 0.0, following), kept=(i, e, m))
    return tp.moveaxis(after[0][i, 0:T, e, m], 0, 1)


def values_after(value: tp.Tensor, final_value: tp.Tensor, point: tuple[tp.Expr, tp.Expr, tp.Expr], T: tp.Expr) -> tp.Tensor:
    """The values of the following steps, of which only the last needs the final observation: episodes that end with the rollout."""
    b, i, t = point
    following = tp.recurrence((), domain=point, name="next_value")
    following[b, i, T - 1] = final_value[b, i, T - 1]
    following[b, i, t] = value[b, i, t + 1]
    return following


def going_on(approx_kl: tp.Tensor, target_kl: float, point: tuple[tp.Expr, tp.Expr, tp.Expr]) -> tp.Tensor:
    """Whether no minibatch of the iteration has had a divergence of more than 1.5 `target_kl` so far."""
    i, _, _ = point
    before = tp.recurrence((), "bool", domain=point, name="going on")
    now = before & (approx_kl.detach() <= 1.5 * target_kl)
    tp.carry(before, True, now, kept=(i,))
    return now


def explained_variance(predicted: tp.Tensor, actual: tp.Tensor) -> tp.Tensor:
    """1 - Var(actual - predicted) / Var(actual): 1 for a perfect prediction, 0 for a constant one."""

    def variance(x: tp.Tensor) -> tp.Tensor:
        centred = x - x.mean()
        return (centred * centred).mean()

    return 1.0 - variance(actual - predicted) / tp.maximum(variance(actual), 1e-8)

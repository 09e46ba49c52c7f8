"""Returns of reinforcement learning, and Q-learning in a loop with its environment."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

GAMMA, LAMBDA = 0.99, 0.95


def play(random: Any, B: int, T: int) -> dict[str, Array]:
    """Rewards, values of states (one more than points), ends of episodes."""
    return {
        "reward": random.normal(size=(B, T)),
        "value": random.normal(size=(B, T)),
        "going": random.uniform(size=(B, T)) > 0.02,
    }


def backwards(step: Any, last: Array, parts: tuple[Array, ...]) -> Array:
    """A scan over time from its end: `step` of the value after and of the parts [B]; [B, T]."""

    def now(after: Array, at: Any) -> Any:
        value = step(after, *at)
        return value, value

    _, values = lax.scan(now, last, tuple(part.T for part in parts), reverse=True)
    return values.T


# -- TD(lambda) ---------------------------------------------------------------------------------------------------------------


def td_lambda(B: int, T: int) -> Traced:
    """The loss's gradient flows through the returns too."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        reward, value = tp.input("reward", domain=(b, t)), tp.input("value", domain=(b, t))
        keep = GAMMA * tp.where(tp.input("going", (), "bool", domain=(b, t)), 1.0, 0.0)
        returns = tp.recurrence((), domain=(b, t), name="returns")
        returns[b, n_t - 1] = reward[b, n_t - 1] + keep[b, n_t - 1] * value[b, n_t - 1]
        returns[b, t] = reward + keep * ((1 - LAMBDA) * value[b, t + 1] + LAMBDA * returns[b, t + 1])
        loss = ((returns - value) ** 2)[0:n_b, 0:n_t].mean()
        (gradient,) = tp.grad(loss, wrt=[value])
    return Traced(ctx, {n_b: B, n_t: T}, [returns, gradient])


def td_lambda_by_hand(reward: Array, value: Array, going: Array) -> Any:
    keep = GAMMA * going

    def loss_of(value: Array) -> Any:
        last = reward[:, -1] + keep[:, -1] * value[:, -1]
        mixed = reward[:, :-1] + keep[:, :-1] * (1 - LAMBDA) * value[:, 1:]
        returns = backwards(lambda after, mixed, keep: mixed + LAMBDA * keep * after, last, (mixed, keep[:, :-1]))
        returns = jnp.concatenate([returns, last[:, None]], 1)
        return ((returns - value) ** 2).mean(), returns

    (_, returns), gradient = jax.value_and_grad(loss_of, has_aux=True)(value)
    return returns, gradient


# -- V-trace --------------------------------------------------------------------------------------------------------------------


def policies(random: Any, B: int, T: int) -> dict[str, Array]:
    return play(random, B, T) | {"ratio": np.exp(0.3 * random.normal(size=(B, T)))}


def v_trace(B: int, T: int) -> Traced:
    """Targets of values, and advantages (Espeholt et al., 2018)."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        reward, value, ratio = (tp.input(name, domain=(b, t)) for name in ("reward", "value", "ratio"))
        keep = GAMMA * tp.where(tp.input("going", (), "bool", domain=(b, t)), 1.0, 0.0)
        clipped = tp.minimum(ratio, 1.0)
        following = value[b, tp.min(t + 1, n_t - 1)]
        change = clipped * (reward + keep * following - value)
        more = tp.recurrence((), domain=(b, t), name="more")
        more[b, n_t - 1] = change[b, n_t - 1]
        more[b, t] = change + keep * clipped * more[b, t + 1]
        target = value + more
        advantage = clipped * (reward + keep * target[b, tp.min(t + 1, n_t - 1)] - value)
    return Traced(ctx, {n_b: B, n_t: T}, [target, advantage])


def v_trace_by_hand(reward: Array, value: Array, going: Array, ratio: Array) -> Any:
    keep, clipped = GAMMA * going, jnp.minimum(ratio, 1.0)

    def following(x: Array) -> Array:
        return jnp.concatenate([x[:, 1:], x[:, -1:]], 1)

    change = clipped * (reward + keep * following(value) - value)
    factor = (keep * clipped).at[:, -1].set(0.0)
    more = backwards(lambda after, change, factor: change + factor * after, jnp.zeros(len(value)), (change, factor))
    target = value + more
    return target, clipped * (reward + keep * following(target) - value)


# -- Retrace ----------------------------------------------------------------------------------------------------------------------


def choices(random: Any, B: int, T: int, A: int) -> dict[str, Array]:
    values = play(random, B, T) | {"q": random.normal(size=(B, T, A)), "logits": random.normal(size=(B, T, A))}
    del values["value"]
    return values | {"action": random.integers(0, A, (B, T)), "chance": random.uniform(0.1, 1.0, (B, T))}


def retrace(B: int, T: int, A: int) -> Traced:
    """Targets of Q, and the gradient of its error; the policy is a softmax (Munos et al., 2016)."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        reward, chance = tp.input("reward", domain=(b, t)), tp.input("chance", domain=(b, t))
        q, logits = tp.input("q", (A,), domain=(b, t)), tp.input("logits", (A,), domain=(b, t))
        action = tp.input("action", (), "int32", domain=(b, t))
        keep = GAMMA * tp.where(tp.input("going", (), "bool", domain=(b, t)), 1.0, 0.0)
        policy = logits.softmax(-1)
        expected, chosen = (policy * q).sum(0), q.index(0, action)
        trace = LAMBDA * tp.minimum(policy.index(0, action) / chance, 1.0)
        target = tp.recurrence((), domain=(b, t), name="target")
        target[b, n_t - 1] = reward[b, n_t - 1]
        rest = expected[b, t + 1] + trace[b, t + 1] * (target[b, t + 1] - chosen[b, t + 1])
        target[b, t] = reward + keep * rest
        loss = ((chosen - target.detach()) ** 2)[0:n_b, 0:n_t].mean()
        (gradient,) = tp.grad(loss, wrt=[q])
    return Traced(ctx, {n_b: B, n_t: T}, [target, gradient])


def retrace_by_hand(reward: Array, going: Array, q: Array, logits: Array, action: Array, chance: Array) -> Any:
    keep = GAMMA * going

    def loss_of(q: Array) -> Any:
        policy = jax.nn.softmax(logits)
        expected = (policy * q).sum(-1)
        chosen, likely = (jnp.take_along_axis(x, action[..., None], 2)[..., 0] for x in (q, policy))
        trace = LAMBDA * jnp.minimum(likely / chance, 1.0)
        fixed = lax.stop_gradient(chosen)
        constant = reward[:, :-1] + keep[:, :-1] * (lax.stop_gradient(expected) - trace * fixed)[:, 1:]
        factor = (keep[:, :-1]) * trace[:, 1:]
        target = backwards(lambda after, constant, factor: constant + factor * after, reward[:, -1], (constant, factor))
        target = jnp.concatenate([target, reward[:, -1:]], 1)
        return ((chosen - lax.stop_gradient(target)) ** 2).mean(), target

    (_, target), gradient = jax.value_and_grad(loss_of, has_aux=True)(q)
    return target, gradient


# -- returns over n steps --------------------------------------------------------------------------------------------------------------


STEPS = 10


def n_step(B: int, T: int) -> Traced:
    """A window of rewards ahead, and the value at its end. Episodes go on."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        reward, value = tp.input("reward", domain=(b, t)), tp.input("value", domain=(b, t))
        gained = reward[b, t : tp.min(t + STEPS, n_t)].discounted_sum(GAMMA)
        end = value[b, tp.min(t + STEPS, n_t - 1)]
        returns = gained + tp.where(t + STEPS < n_t, GAMMA**STEPS * end, 0.0)
        loss = ((returns - value) ** 2)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=[value, reward])
    return Traced(ctx, {n_b: B, n_t: T}, [returns, *gradients])


def rewards(random: Any, B: int, T: int) -> dict[str, Array]:
    return {"reward": random.normal(size=(B, T)), "value": random.normal(size=(B, T))}


def n_step_by_hand(reward: Array, value: Array) -> Any:
    T = reward.shape[1]

    def loss_of(value: Array, reward: Array) -> Any:
        padded = jnp.pad(reward, ((0, 0), (0, STEPS)))
        returns = sum(GAMMA**k * padded[:, k : k + T] for k in range(STEPS))
        returns += GAMMA**STEPS * jnp.pad(value, ((0, 0), (0, STEPS)))[:, STEPS : STEPS + T]
        return ((returns - value) ** 2).mean(), returns

    (_, returns), gradients = jax.value_and_grad(loss_of, (0, 1), has_aux=True)(value, reward)
    return returns, *gradients


# -- Q-learning from a window of the past, with a target network ---------------------------------------------------------------------


FRESH = 50  # points between two target networks
RATE = 0.05


def q_inputs(random: Any, T: int, S: int, H: int, A: int, W: int) -> dict[str, Array]:
    return {
        "noise": 0.3 * random.normal(size=(T, S)),
        "push": random.normal(size=(A, S)),
        "hidden": random.normal(size=(S, H)) / np.sqrt(S),
        "out": random.normal(size=(H, A)) / np.sqrt(H),
    }


def q_learning(T: int, S: int, H: int, A: int, W: int) -> Traced:
    """At each point: act greedily, then one step of learning from the last W transitions, each over three points."""
    n = 3
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        push, noise = tp.input("push", (A, S)), tp.input("noise", (S,), domain=(t,))
        hidden = tp.recurrence((S, H), domain=(t,), name="hidden")
        out = tp.recurrence((H, A), domain=(t,), name="out")
        hidden[0], out[0] = tp.input("hidden", (S, H)), tp.input("out", (H, A))
        state = tp.recurrence((S,), domain=(t,), name="state")
        action = (tp.tanh(state @ hidden.detach()) @ out.detach()).argmax(-1)
        state[0] = noise[0]
        state[t + 1] = tp.tanh(0.9 * state + 0.3 * push.take(action, 0) + noise[t + 1])
        reward = -(state**2).sum(0)

        begin = tp.max(t - n, 0)
        start, chosen = state[begin], action[begin]
        gained = reward[begin:t].discounted_sum(GAMMA)
        window = slice(tp.max(t - W + 1, 0), t + 1)
        fresh = t // FRESH * FRESH
        best = (tp.tanh(state[window] @ hidden[fresh]) @ out[fresh]).max(-1)
        target = (gained[window] + GAMMA**n * best).detach()
        value = tp.take_along_last(tp.tanh(start[window] @ hidden) @ out, chosen[window])
        loss = ((value - target) ** 2).mean()
        by_hidden, by_out = tp.grad(loss, wrt=[hidden, out])
        hidden[t + 1], out[t + 1] = hidden - RATE * by_hidden, out - RATE * by_out
    return Traced(ctx, {n_t: T}, [loss, reward])


def q_learning_by_hand(noise: Array, push: Array, hidden: Array, out: Array, W: int) -> Any:
    """Rings of the last W transitions; points that are not filled yet are masked."""
    n, S = 3, noise.shape[1]

    def step(carry: Any, at: Any) -> Any:
        t, following_noise = at
        weights, fresh, state, recent, ring = carry
        fresh = jax.tree.map(lambda old, new: jnp.where(t % FRESH == 0, new, old), fresh, weights)
        action = (jnp.tanh(state @ weights[0]) @ weights[1]).argmax(-1).astype(jnp.int32)
        reward = -(state**2).sum()
        recent = tuple(jnp.concatenate([old[1:], new[None]]) for old, new in zip(recent, (state, action, reward), strict=True))
        states, actions, rewards = recent
        # entry n - k of the recent ones is that of k points ago; the first point stands for those before it
        filled = jnp.minimum(t, n)
        start, chosen = states[n - filled], actions[n - filled]
        power = jnp.arange(n) - (n - filled)
        gained = jnp.where(power >= 0, rewards[:n] * GAMMA ** jnp.maximum(power, 0), 0.0).sum()
        place = t % W
        ring = tuple(old.at[place].set(new) for old, new in zip(ring, (start, chosen, gained, state), strict=True))
        is_filled = jnp.arange(W) <= t
        best = (jnp.tanh(ring[3] @ fresh[0]) @ fresh[1]).max(-1)
        target = ring[2] + GAMMA**n * best

        def loss_of(weights: Any) -> Array:
            value = (jnp.tanh(ring[0] @ weights[0]) @ weights[1])[jnp.arange(W), ring[1]]
            return jnp.where(is_filled, (value - target) ** 2, 0.0).sum() / is_filled.sum()

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        weights = jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)
        state = jnp.tanh(0.9 * state + 0.3 * push[action] + following_noise)
        return (weights, fresh, state, recent, ring), (loss, reward)

    recent = jnp.zeros((n + 1, S)), jnp.zeros(n + 1, jnp.int32), jnp.zeros(n + 1)
    ring = jnp.zeros((W, S)), jnp.zeros(W, jnp.int32), jnp.zeros(W), jnp.zeros((W, S))
    weights = hidden, out
    following = jnp.concatenate([noise[1:], noise[:1]])
    _, results = lax.scan(step, (weights, weights, noise[0], recent, ring), (jnp.arange(len(noise)), following))
    return results


PLAY = {
    "tiny": {"B": 2, "T": 5},
    "small": {"B": 1, "T": 20},
    "full": {"B": 1024, "T": 2000},
    "long": {"B": 2, "T": 100_000},
}
CHOICES = {
    "tiny": {"B": 2, "T": 5, "A": 3},
    "small": {"B": 1, "T": 20, "A": 4},
    "full": {"B": 256, "T": 1000, "A": 8},
    "long": {"B": 1, "T": 100_000, "A": 2},
}
WINDOW = {
    "tiny": {"B": 2, "T": 14},
    "small": {"B": 1, "T": 20},
    "full": {"B": 1024, "T": 2000},
    "long": {"B": 2, "T": 100_000},
}
LEARNING = {
    "tiny": {"T": 8, "S": 2, "H": 3, "A": 2, "W": 4},
    "small": {"T": 20, "S": 4, "H": 8, "A": 2, "W": 8},
    "full": {"T": 1000, "S": 8, "H": 32, "A": 4, "W": 64},
    "long": {"T": 100_000, "S": 2, "H": 4, "A": 2, "W": 8},
}
CLASSICS = [
    Classic("TD(lambda)", td_lambda, {"scan": td_lambda_by_hand}, play, PLAY),
    Classic("V-trace", v_trace, {"scan": v_trace_by_hand}, policies, PLAY),
    Classic("Retrace", retrace, {"scan": retrace_by_hand}, choices, CHOICES),
    Classic("n-step returns", n_step, {"shifts": n_step_by_hand}, rewards, WINDOW),
    Classic(
        "n-step Q, replay window, target network",
        q_learning,
        {"rings": q_learning_by_hand},
        q_inputs,
        LEARNING,
        tolerance=1e-3,
        reason="a loop of learning and acting makes rounding errors grow",
    ),
]

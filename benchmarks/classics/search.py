"""Search and planning: beams, values of states, shortest paths, packing, bandits."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

# -- beam search ------------------------------------------------------------------------------------------------------------------


def language(random: Any, B: int, T: int, K: int, V: int, H: int) -> dict[str, Array]:
    return {
        "embedding": random.normal(size=(V, H)),
        "weight": random.normal(size=(H, H)) / np.sqrt(H),
        "head": random.normal(size=(H, V)) / np.sqrt(H),
        "start": random.normal(size=(B, H)),
    }


def beam_search(B: int, T: int, K: int, V: int, H: int) -> Traced:
    """The K best continuations by a recurrent network. `parent` says from which beam each comes; the best one is read backwards."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        embedding, weight, head = tp.input("embedding", (V, H)), tp.input("weight", (H, H)), tp.input("head", (H, V))
        state = tp.recurrence((K, H), domain=(b, t), name="state")
        score = tp.recurrence((K,), domain=(b, t), name="score")
        total = score.expand_dims(1) + (state @ head).log_softmax(-1)
        best, place = tp.top_k(total.reshape(K * V), K)
        parent, token = place // V, place % V
        state[b, 0] = tp.broadcast_to(tp.input("start", (H,), domain=(b,)), (K, H))
        state[b, t + 1] = tp.tanh(state.take(parent, 0) @ weight + embedding.take(token, 0))
        score[b, 0] = tp.where(tp.arange(K) == 0, 0.0, -1e30)  # one beam at first: the others would repeat it
        score[b, t + 1] = best
        beam = tp.recurrence((), "int32", domain=(b, t), name="beam")
        beam[b, n_t - 1] = 0
        beam[b, t] = parent[b, t + 1].index(0, beam[b, t + 1])
        tokens = token.index(0, beam)
        final = best[b, n_t - 1].index(0, 0)
    return Traced(ctx, {n_b: B, n_t: T}, [tokens, final])


def beam_search_by_hand(embedding: Array, weight: Array, head: Array, start: Array, T: int, K: int) -> Any:
    B, H = start.shape
    V = len(embedding)

    def step(carry: Any, _: None) -> Any:
        state, score = carry
        total = score[:, :, None] + jax.nn.log_softmax(state @ head)
        best, place = lax.top_k(total.reshape(B, K * V), K)
        parent, token = place // V, place % V
        state = jnp.tanh(jnp.take_along_axis(state, parent[:, :, None], 1) @ weight + embedding[token])
        return (state, best), (parent, token)

    first = jnp.broadcast_to(start[:, None], (B, K, H)), jnp.broadcast_to(jnp.where(jnp.arange(K) == 0, 0.0, -1e30), (B, K))
    (_, best), (parents, tokens) = lax.scan(step, first, None, length=T)

    def back(beam: Array, at: Any) -> Any:
        parent, token = at
        pick = lambda x: jnp.take_along_axis(x, beam[:, None], 1)[:, 0]  # noqa: E731
        return pick(parent), pick(token)

    _, chosen = lax.scan(back, jnp.zeros(B, jnp.int32), (parents, tokens), reverse=True)
    return chosen.T, best[:, 0]


# -- value iteration on a field -------------------------------------------------------------------------------------------------------


def field(random: Any, K: int, N: int) -> dict[str, Array]:
    return {"reward": random.normal(size=(N, N))}


def value_iteration(K: int, N: int) -> Traced:
    """Move to a neighbour, or stay; the places are steps."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        reward = tp.input("reward", domain=(i, j))
        value = tp.recurrence((), domain=(k, i, j), name="value")
        before = value[k - 1, i, j]
        up, down = value[k - 1, tp.max(i - 1, 0), j], value[k - 1, tp.min(i + 1, n_i - 1), j]
        left, right = value[k - 1, i, tp.max(j - 1, 0)], value[k - 1, i, tp.min(j + 1, n_j - 1)]
        value[0, i, j] = reward[i, j]
        value[k, i, j] = reward + 0.9 * tp.maximum(before, tp.maximum(tp.maximum(up, down), tp.maximum(left, right)))
        last = value[n_k - 1, i, j]
    return Traced(ctx, {n_k: K, n_i: N, n_j: N}, [last])


def value_iteration_by_hand(reward: Array, K: int) -> Any:
    def step(value: Array, _: None) -> Any:
        wide = jnp.pad(value, 1, mode="edge")
        around = jnp.maximum(jnp.maximum(wide[:-2, 1:-1], wide[2:, 1:-1]), jnp.maximum(wide[1:-1, :-2], wide[1:-1, 2:]))
        return reward + 0.9 * jnp.maximum(value, around), None

    return (lax.scan(step, reward, None, length=K - 1)[0],)


# -- shortest paths: Floyd and Warshall ----------------------------------------------------------------------------------------------


def roads(random: Any, N: int) -> dict[str, Array]:
    return {"road": random.uniform(1.0, 10.0, (N, N)) * (1 - np.eye(N))}


def shortest_paths(N: int) -> Traced:
    """Paths whose inner places are below k; the places are steps."""
    ctx = tp.Context("k", "i", "j")
    with ctx as ((k, n_k), (i, n_i), (j, n_j)):
        road = tp.input("road", domain=(i, j))
        path = tp.recurrence((), domain=(k, i, j), name="path")
        path[0, i, j] = road
        path[k + 1, i, j] = tp.minimum(path, path[k, i, k] + path[k, k, j])
        last = path[n_k - 1, i, j]
    return Traced(ctx, {n_k: N + 1, n_i: N, n_j: N}, [last])


def shortest_paths_by_hand(road: Array) -> Any:
    def step(k: Array, path: Array) -> Array:
        row = lax.dynamic_index_in_dim(path, k, 0, keepdims=True)
        column = lax.dynamic_index_in_dim(path, k, 1, keepdims=True)
        return jnp.minimum(path, column + row)

    return (lax.fori_loop(0, len(road), step, road),)


# -- packing a knapsack ---------------------------------------------------------------------------------------------------------------


def things(random: Any, N: int, C: int) -> dict[str, Array]:
    return {"weight": random.integers(1, max(2, C // 4), (N,)), "worth": random.uniform(1.0, 10.0, (N,))}


def knapsack(N: int, C: int) -> Traced:
    """The best worth by capacity, which is a dimension: data say how far to look back."""
    ctx = tp.Context("n")
    with ctx as ((n, n_n),):
        weight, worth = tp.input("weight", (), "int32", domain=(n,)), tp.input("worth", domain=(n,))
        best = tp.recurrence((C,), domain=(n,), name="best")
        rest = tp.arange(C) - weight
        packed = tp.where(rest >= 0, best.take(tp.maximum(rest, 0), 0) + worth, best)
        after = tp.maximum(best, packed)
        tp.carry(best, tp.zeros((C,)), after)
        total = after[n_n - 1].index(0, C - 1)
    return Traced(ctx, {n_n: N}, [total])


def knapsack_by_hand(weight: Array, worth: Array, C: int) -> Any:
    def step(best: Array, at: Any) -> Any:
        weight, worth = at
        shifted = lax.dynamic_slice(jnp.concatenate([jnp.full((C,), -jnp.inf), best]), (C - weight,), (C,))
        return jnp.maximum(best, shifted + worth), None

    return (lax.scan(step, jnp.zeros(C), (weight, worth))[0][-1],)


# -- a bandit: upper confidence bounds ---------------------------------------------------------------------------------------------------


def arms(random: Any, B: int, T: int, A: int) -> dict[str, Array]:
    return {"mean": random.normal(size=(B, A)), "noise": random.normal(size=(B, T))}


def bandit(B: int, T: int, A: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        mean, noise = tp.input("mean", (A,), domain=(b,)), tp.input("noise", domain=(b, t))
        count = tp.recurrence((A,), domain=(b, t), name="count")
        gain = tp.recurrence((A,), domain=(b, t), name="gain")
        bound = gain / count + tp.sqrt(2.0 * tp.log(t + 1.0) / count)
        arm = bound.argmax(0)
        reward = mean.index(0, arm) + noise
        pulled = arm.one_hot(A)
        count[b, 0], gain[b, 0] = tp.ones((A,)), tp.zeros((A,))
        count[b, t + 1], gain[b, t + 1] = count + pulled, gain + pulled * reward
    return Traced(ctx, {n_b: B, n_t: T}, [arm, reward])


def bandit_by_hand(mean: Array, noise: Array) -> Any:
    B, A = mean.shape

    def step(carry: Any, at: Any) -> Any:
        count, gain = carry
        t, noise = at
        arm = (gain / count + jnp.sqrt(2.0 * jnp.log(t + 1.0) / count)).argmax(1).astype(jnp.int32)
        reward = jnp.take_along_axis(mean, arm[:, None], 1)[:, 0] + noise
        pulled = jax.nn.one_hot(arm, A)
        return (count + pulled, gain + pulled * reward[:, None]), (arm, reward)

    times = jnp.arange(noise.shape[1], dtype=jnp.float32)
    _, (arm, reward) = lax.scan(step, (jnp.ones((B, A)), jnp.zeros((B, A))), (times, noise.T))
    return arm.T, reward.T


CLASSICS = [
    Classic(
        "beam search",
        beam_search,
        {"scan": beam_search_by_hand},
        language,
        {
            "tiny": {"B": 2, "T": 4, "K": 2, "V": 5, "H": 3},
            "small": {"B": 1, "T": 10, "K": 4, "V": 16, "H": 8},
            "full": {"B": 4, "T": 64, "K": 8, "V": 1000, "H": 64},
            "long": {"B": 1, "T": 100_000, "K": 2, "V": 4, "H": 4},
        },
    ),
    Classic(
        "value iteration",
        value_iteration,
        {"scan": value_iteration_by_hand},
        field,
        {"tiny": {"K": 4, "N": 5}, "small": {"K": 10, "N": 12}, "full": {"K": 200, "N": 300}, "long": {"K": 100_000, "N": 4}},
    ),
    Classic(
        "shortest paths",
        shortest_paths,
        {"loop": shortest_paths_by_hand},
        roads,
        {"tiny": {"N": 5}, "small": {"N": 10}, "full": {"N": 400}},
    ),
    Classic(
        "knapsack",
        knapsack,
        {"scan": knapsack_by_hand},
        things,
        {"tiny": {"N": 4, "C": 7}, "small": {"N": 10, "C": 32}, "full": {"N": 500, "C": 80_000}, "long": {"N": 100_000, "C": 8}},
    ),
    Classic(
        "bandit",
        bandit,
        {"scan": bandit_by_hand},
        arms,
        {
            "tiny": {"B": 2, "T": 5, "A": 3},
            "small": {"B": 1, "T": 20, "A": 4},
            "full": {"B": 64, "T": 4000, "A": 10},
            "long": {"B": 1, "T": 100_000, "A": 3},
        },
    ),
]

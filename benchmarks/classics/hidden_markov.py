"""Hidden Markov models and connectionist temporal classification: sums and maxima over paths through states."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced


def probabilities(random: Any, *shape: int) -> Array:
    """Random distributions over the last dimension."""
    values = random.uniform(0.1, 1.0, shape)
    return values / values.sum(-1, keepdims=True)


def inputs(random: Any, B: int, T: int, S: int) -> dict[str, Array]:
    """`seen` is the probability of each observation by state."""
    return {"start": probabilities(random, S), "move": probabilities(random, S, S), "seen": probabilities(random, B, T, S)}


# -- forward: the likelihood of observations, and its gradient -----------------------------------------------------------


def forward(B: int, T: int, S: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        start, move = tp.input("start", (S,)), tp.input("move", (S, S))
        seen = tp.input("seen", (S,), domain=(b, t))
        state = tp.recurrence((S,), domain=(b, t), name="state")
        joint = state * seen
        scale = joint.sum(0)
        state[b, 0] = start
        state[b, t + 1] = (joint / scale) @ move
        likelihood = tp.log(scale)[b, 0:n_t].sum(0)
        gradients = tp.grad(likelihood[0:n_b].mean(0), wrt=[start, move, seen])
    return Traced(ctx, {n_b: B, n_t: T}, [likelihood, *gradients])


def forward_by_hand(start: Array, move: Array, seen: Array) -> Any:
    def mean_likelihood(start: Array, move: Array, seen: Array) -> Any:
        def step(state: Array, seen: Array) -> tuple[Array, Array]:
            joint = state * seen
            scale = joint.sum(-1)
            return (joint / scale[:, None]) @ move, jnp.log(scale)

        first = jnp.broadcast_to(start, (seen.shape[0], start.shape[0]))
        _, logs = lax.scan(step, first, seen.swapaxes(0, 1))
        likelihood = logs.sum(0)
        return likelihood.mean(), likelihood

    (_, likelihood), gradients = jax.value_and_grad(mean_likelihood, (0, 1, 2), has_aux=True)(start, move, seen)
    return likelihood, *gradients


# -- forward and backward: the probability of each state ----------------------------------------------------------------


def posterior(B: int, T: int, S: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        start, move = tp.input("start", (S,)), tp.input("move", (S, S))
        seen = tp.input("seen", (S,), domain=(b, t))
        before = tp.recurrence((S,), domain=(b, t), name="before")
        before[b, 0] = start * seen[b, 0]
        before[b, t] = ((before[b, t - 1] / before[b, t - 1].sum(0)) @ move) * seen
        after = tp.recurrence((S,), domain=(b, t), name="after")
        after[b, n_t - 1] = tp.ones((S,))
        following = move @ (after[b, t + 1] * seen[b, t + 1])
        after[b, t] = following / following.sum(0)
        joint = before * after
        posterior = joint / joint.sum(0)
    return Traced(ctx, {n_b: B, n_t: T}, [posterior])


def posterior_by_hand(start: Array, move: Array, seen: Array) -> Any:
    seen = seen.swapaxes(0, 1)

    def forwards(before: Array, seen: Array) -> tuple[Array, Array]:
        before = ((before / before.sum(-1, keepdims=True)) @ move) * seen
        return before, before

    def backwards(after: Array, seen: Array) -> tuple[Array, Array]:
        following = (after * seen) @ move.T
        following = following / following.sum(-1, keepdims=True)
        return following, following

    first = start * seen[0]
    _, before = lax.scan(forwards, first, seen[1:])
    last = jnp.ones_like(first)
    _, after = lax.scan(backwards, last, seen[1:], reverse=True)
    joint = jnp.concatenate([first[None], before]) * jnp.concatenate([after, last[None]])
    return ((joint / joint.sum(-1, keepdims=True)).swapaxes(0, 1),)


# -- Viterbi: the most probable path --------------------------------------------------------------------------------------


def viterbi(B: int, T: int, S: int) -> Traced:
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        start, move = tp.log(tp.input("start", (S,))), tp.log(tp.input("move", (S, S)))
        seen = tp.log(tp.input("seen", (S,), domain=(b, t)))
        best = tp.recurrence((S,), domain=(b, t), name="best")
        scores = best[b, t - 1].expand_dims(1) + move
        best[b, 0] = start + seen[b, 0]
        best[b, t] = scores.max(0) + seen
        came_from = scores.argmax(0)
        path = tp.recurrence((), "int32", domain=(b, t), name="path")
        path[b, n_t - 1] = best[b, n_t - 1].argmax(0)
        path[b, t] = came_from[b, t + 1].index(0, path[b, t + 1])
        score = best[b, n_t - 1].max(0)
    return Traced(ctx, {n_b: B, n_t: T}, [score, path])


def viterbi_by_hand(start: Array, move: Array, seen: Array) -> Any:
    start, move, seen = jnp.log(start), jnp.log(move), jnp.log(seen).swapaxes(0, 1)

    def forwards(best: Array, seen: Array) -> tuple[Array, Array]:
        scores = best[:, :, None] + move
        return scores.max(1) + seen, scores.argmax(1).astype(jnp.int32)

    best, came_from = lax.scan(forwards, start + seen[0], seen[1:])
    last = best.argmax(-1).astype(jnp.int32)

    def backwards(state: Array, came_from: Array) -> tuple[Array, Array]:
        state = jnp.take_along_axis(came_from, state[:, None], 1)[:, 0]
        return state, state

    _, path = lax.scan(backwards, last, came_from, reverse=True)
    return best.max(-1), jnp.concatenate([path, last[None]]).swapaxes(0, 1)


# -- connectionist temporal classification --------------------------------------------------------------------------------
# An alignment is a path through the labels, with a blank (symbol 0) before, between and after them. A path stays, goes to the
# next place, or passes over a blank between two labels that differ.


def ctc_inputs(random: Any, B: int, T: int, L: int, K: int) -> dict[str, Array]:
    labels = random.integers(1, K, (B, L))
    padded = np.zeros((B, 2 * L + 1), np.int32)
    padded[:, 1::2] = labels
    return {"logits": random.normal(size=(B, T, K)), "label": padded}


FAR = -1e30  # the logarithm of nearly nothing, whose differences are finite


def ctc(B: int, T: int, L: int, K: int) -> Traced:
    """The places are a step."""
    ctx = tp.Context("b", "t", "s")
    with ctx as ((b, n_b), (t, n_t), (s, n_s)):
        logits = tp.input("logits", (K,), domain=(b, t))
        label = tp.input("label", (), "int32", domain=(b, s))
        emission = logits.log_softmax(-1).index(0, label)
        path = tp.recurrence((), domain=(b, t, s), name="path")
        one = tp.where(s >= 1, path[b, t - 1, tp.max(s - 1, 0)], FAR)
        passes = (label != 0) & (label != label[b, tp.max(s - 2, 0)]) & (s >= 2)
        two = tp.where(passes, path[b, t - 1, tp.max(s - 2, 0)], FAR)
        path[b, 0, s, s < 2] = emission[b, 0, s]
        path[b, 0, s] = FAR
        path[b, t, s] = tp.logaddexp(tp.logaddexp(path[b, t - 1, s], one), two) + emission
        loss = -tp.logaddexp(path[b, n_t - 1, n_s - 1], path[b, n_t - 1, n_s - 2])
        (gradient,) = tp.grad(loss[0:n_b].mean(0), wrt=[logits])
    return Traced(ctx, {n_b: B, n_t: T, n_s: 2 * L + 1}, [loss, gradient])


def ctc_rows(B: int, T: int, L: int, K: int) -> Traced:
    """The places are a dimension, which moves by padding."""
    places = 2 * L + 1
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        logits = tp.input("logits", (K,), domain=(b, t))
        label = tp.input("label", (places,), "int32", domain=(b,))
        emission = logits.log_softmax(-1).take(label, 0)
        passes = (label != 0) & (label != tp.pad(label.spatial[: places - 2], (2, 0)))
        path = tp.recurrence((places,), domain=(b, t), name="path")
        before = path[b, t - 1]
        one = tp.concatenate([tp.full((1,), FAR), before.spatial[: places - 1]])
        two = tp.where(passes, tp.concatenate([tp.full((2,), FAR), before.spatial[: places - 2]]), FAR)
        path[b, 0] = tp.where(tp.arange(places) < 2, emission[b, 0], FAR)
        path[b, t] = tp.logaddexp(tp.logaddexp(before, one), two) + emission
        loss = -path[b, n_t - 1].spatial[places - 2 :].logsumexp(0)
        (gradient,) = tp.grad(loss[0:n_b].mean(0), wrt=[logits])
    return Traced(ctx, {n_b: B, n_t: T}, [loss, gradient])


def ctc_by_hand(logits: Array, label: Array) -> Any:
    places = label.shape[1]
    passes = (label != 0) & (label != jnp.pad(label[:, :-2], ((0, 0), (2, 0))))

    def mean_loss(logits: Array) -> Any:
        emission = jnp.take_along_axis(jax.nn.log_softmax(logits), label[:, None, :], 2).swapaxes(0, 1)

        def step(path: Array, emission: Array) -> tuple[Array, None]:
            one = jnp.pad(path[:, :-1], ((0, 0), (1, 0)), constant_values=FAR)
            two = jnp.where(passes, jnp.pad(path[:, :-2], ((0, 0), (2, 0)), constant_values=FAR), FAR)
            return jnp.logaddexp(jnp.logaddexp(path, one), two) + emission, None

        first = jnp.where(jnp.arange(places) < 2, emission[0], FAR)
        last, _ = lax.scan(step, first, emission[1:])
        loss = -jnp.logaddexp(last[:, -1], last[:, -2])
        return loss.mean(), loss

    (_, loss), gradient = jax.value_and_grad(mean_loss, has_aux=True)(logits)
    return loss, gradient


MARKOV = {
    "tiny": {"B": 2, "T": 5, "S": 3},
    "small": {"B": 1, "T": 20, "S": 4},
    "full": {"B": 16, "T": 2000, "S": 32},
    "long": {"B": 1, "T": 100_000, "S": 4},
}
LABELS = {
    "tiny": {"B": 2, "T": 7, "L": 2, "K": 4},
    "small": {"B": 1, "T": 20, "L": 4, "K": 8},
    "full": {"B": 16, "T": 500, "L": 30, "K": 32},
    "long": {"B": 1, "T": 100_000, "L": 4, "K": 4},
}
ROUNDED_LOGARITHM = "gradients are exponentials of sums of about -1000, which float32 rounds to 1e-4"
CLASSICS = [
    Classic("HMM forward", forward, {"scan": forward_by_hand}, inputs, MARKOV),
    Classic("HMM forward-backward", posterior, {"scan": posterior_by_hand}, inputs, MARKOV),
    Classic("HMM Viterbi", viterbi, {"scan": viterbi_by_hand}, inputs, MARKOV),
    Classic("CTC, places a step", ctc, {"scan": ctc_by_hand}, ctc_inputs, LABELS, 3e-3, ROUNDED_LOGARITHM),
    Classic("CTC, places a dimension", ctc_rows, {"scan": ctc_by_hand}, ctc_inputs, LABELS, 3e-3, ROUNDED_LOGARITHM),
]

"""WaveNet: layers of causal convolutions with two taps, which are 1, 2, 4, ... points apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import tempo_core as tp
from benchmarks.classics.classic import Array, Classic, Traced

LEVELS = 32  # of sound


def weights(random: Any, L: int, C: int) -> dict[str, Array]:
    def matrix(*shape: int) -> Array:
        return random.normal(size=shape) / np.sqrt(shape[-2])

    shapes = {"embedding": (LEVELS, C), "now": (L, C, 2 * C), "past": (L, C, 2 * C), "mix": (L, C, C), "head": (C, LEVELS)}
    return {name: matrix(*shape) for name, shape in shapes.items()}


def inputs_of(L: int, C: int) -> list[tp.Tensor]:
    shapes = {"embedding": (LEVELS, C), "now": (L, C, 2 * C), "past": (L, C, 2 * C), "mix": (L, C, C), "head": (C, LEVELS)}
    return [tp.input(name, shape) for name, shape in shapes.items()]


# -- training: all points at once -----------------------------------------------------------------------------------------------


def training(B: int, T: int, L: int, C: int) -> Traced:
    """Layer by layer, each with its own distance; batch and time are steps."""
    ctx = tp.Context("b", "t")
    with ctx as ((b, n_b), (t, n_t)):
        parameters = inputs_of(L, C)
        embedding, now, past, mix, head = parameters
        sound = tp.input("sound", (), "int32", domain=(b, t))
        x, skip = embedding.take(sound, 0), tp.zeros((C,))
        for l in range(L):
            before = tp.where(t >= 2**l, x[b, tp.max(t - 2**l, 0)], 0.0)
            gate, value = tp.split(x @ now.spatial[l] + before @ past.spatial[l], 2, -1)
            out = (tp.sigmoid(gate) * tp.tanh(value)) @ mix.spatial[l]
            x, skip = x + out, skip + out
        logits = tp.relu(skip) @ head
        following = sound[b, tp.min(t + 1, n_t - 1)]
        loss = -logits.log_softmax(-1).index(0, following)[0:n_b, 0:n_t].mean()
        gradients = tp.grad(loss, wrt=parameters)
    return Traced(ctx, {n_b: B, n_t: T}, [loss, *gradients])


def sounds(random: Any, B: int, T: int, L: int, C: int) -> dict[str, Array]:
    return weights(random, L, C) | {"sound": random.integers(0, LEVELS, (B, T))}


def training_by_hand(embedding: Array, now: Array, past: Array, mix: Array, head: Array, sound: Array) -> Any:
    def loss_of(embedding: Array, now: Array, past: Array, mix: Array, head: Array) -> Array:
        T = sound.shape[1]
        x = embedding[sound]
        skip = jnp.zeros_like(x)
        for l in range(len(now)):
            before = jnp.pad(x, ((0, 0), (2**l, 0), (0, 0)))[:, :T]
            gate, value = jnp.split(x @ now[l] + before @ past[l], 2, -1)
            out = (jax.nn.sigmoid(gate) * jnp.tanh(value)) @ mix[l]
            x, skip = x + out, skip + out
        logits = jax.nn.relu(skip) @ head
        following = jnp.concatenate([sound[:, 1:], sound[:, -1:]], 1)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), following[:, :, None], 2).mean()

    loss, gradients = jax.value_and_grad(loss_of, (0, 1, 2, 3, 4))(embedding, now, past, mix, head)
    return loss, *gradients


# -- generation: each point chooses the next ------------------------------------------------------------------------------------


def generation(B: int, T: int, L: int, C: int) -> Traced:
    """The sound that follows is the most probable one; each layer keeps as many points as its taps are apart."""
    ctx = tp.Context("t")
    with ctx as ((t, n_t),):
        embedding, now, past, mix, head = inputs_of(L, C)
        sound = tp.recurrence((B,), "int32", domain=(t,), name="sound")
        sound[0] = tp.input("first", (B,), "int32")
        x, skip = embedding.take(sound, 0), tp.zeros((B, C))
        for l in range(L):
            before = tp.where(t >= 2**l, x[tp.max(t - 2**l, 0)], 0.0)
            gate, value = tp.split(x @ now.spatial[l] + before @ past.spatial[l], 2, -1)
            out = (tp.sigmoid(gate) * tp.tanh(value)) @ mix.spatial[l]
            x, skip = x + out, skip + out
        sound[t + 1] = (tp.relu(skip) @ head).argmax(-1)
    return Traced(ctx, {n_t: T}, [sound])


def first_sounds(random: Any, B: int, T: int, L: int, C: int) -> dict[str, Array]:
    return weights(random, L, C) | {"first": random.integers(0, LEVELS, (B,))}


def generation_by_hand(
    embedding: Array, now: Array, past: Array, mix: Array, head: Array, first: Array, T: int, unroll: int = 1
) -> Any:
    """Layers written out; a ring of values for each."""
    B, L, C = len(first), len(now), embedding.shape[1]

    def step(carry: Any, t: Array) -> Any:
        sound, rings = carry
        x, skip = embedding[sound], jnp.zeros((B, C))
        filled = []
        for l, ring in enumerate(rings):
            place = t % 2**l
            before = lax.dynamic_index_in_dim(ring, place, 0, keepdims=False)
            filled.append(lax.dynamic_update_index_in_dim(ring, x, place, 0))
            gate, value = jnp.split(x @ now[l] + before @ past[l], 2, -1)
            out = (jax.nn.sigmoid(gate) * jnp.tanh(value)) @ mix[l]
            x, skip = x + out, skip + out
        following = (jax.nn.relu(skip) @ head).argmax(-1).astype(jnp.int32)
        return (following, filled), sound

    rings: Sequence[Array] = [jnp.zeros((2**l, B, C)) for l in range(L)]
    _, sounds = lax.scan(step, (first, list(rings)), jnp.arange(T))
    return (sounds,)


SIZES = {
    "tiny": {"B": 2, "T": 6, "L": 2, "C": 3},
    "small": {"B": 1, "T": 20, "L": 3, "C": 8},
    "full": {"B": 4, "T": 512, "L": 8, "C": 32},
    "long": {"B": 1, "T": 100_000, "L": 3, "C": 4},
}
CLASSICS = [
    Classic("WaveNet training", training, {"layers": training_by_hand}, sounds, SIZES),
    Classic("WaveNet generation", generation, {"rings": generation_by_hand}, first_sounds, SIZES),
]

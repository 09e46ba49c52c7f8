"""Updates of a Llama by JAX: the loss of the tokens that count, its gradient, and AdamW, written without the package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo_llm.training.finetune import Finetuning
from tempo_llm.training.going_on import GoingOn
from tests.llm import oracle


def trained_by_jax(task: Finetuning, values: dict[str, Any]) -> Iterator[tuple[Any, Any, dict[str, np.ndarray]]]:
    """After each update: its loss, the norm of its gradient, and what is trained, by name. The rate rises to the recipe's in the first update."""
    updates, inputs = Updates(task), task.inputs()
    step = jax.jit(jax.value_and_grad(lambda w, rows, counted: _loss(values, updates.all(w), updates.scale, rows, counted)))
    for order in inputs["row"].reshape(task.recipe.updates, -1):
        with jax.numpy_rank_promotion("allow"):
            loss, gradients = step(updates.trained, inputs["rows"][order], inputs["counted"][order].astype(np.float32))
        norm = updates.update(gradients)
        yield loss, norm, {name: np.asarray(array) for name, array in updates.trained.items()}


class Updates:
    """What is trained, by name, and AdamW's moments. The rate rises to the recipe's in the first update, and stays."""

    def __init__(self, task: GoingOn):
        self.recipe = task.recipe
        self.fixed = {name: jnp.asarray(array) for name, array in task.first_values().items()}
        self.trained = {name: array for name, array in self.fixed.items() if task.adapters is None or ".lora_" in name}
        self.first = {name: jnp.zeros_like(array) for name, array in self.trained.items()}
        self.second = dict(self.first)
        self.scale = 0.0 if task.adapters is None else task.adapters.alpha / task.adapters.rank
        self.count = 0

    def all(self, trained: dict[str, Any]) -> dict[str, Any]:
        return {**self.fixed, **trained}

    def update(self, gradients: dict[str, Any]) -> Any:
        """The norm of the gradients, by which the parameters are updated."""
        recipe, first, second = self.recipe, self.first, self.second
        norm = jnp.sqrt(sum(jnp.square(g).sum() for g in gradients.values()))
        clip = jnp.minimum(recipe.max_grad_norm / (norm + 1e-6), 1.0)
        rate = recipe.learning_rate / 2 if self.count == 0 else _after_warmup(recipe, self.count)
        self.count += 1
        for name, gradient in gradients.items():
            first[name] = recipe.beta1 * first[name] + (1 - recipe.beta1) * gradient * clip
            second[name] = recipe.beta2 * second[name] + (1 - recipe.beta2) * jnp.square(gradient * clip)
            mean, spread = (m / (1 - beta**self.count) for m, beta in ((first[name], recipe.beta1), (second[name], recipe.beta2)))
            decay = recipe.weight_decay * self.trained[name]
            self.trained[name] = self.trained[name] - rate * (mean / (jnp.sqrt(spread) + 1e-8) + decay)
        return norm


def _after_warmup(recipe: Any, count: int) -> float:
    """The learning rate after `count` updates, behind a warmup of one: half a cosine."""
    share = (count - 1) / (recipe.updates - 1)
    return recipe.final_learning_rate + (recipe.learning_rate - recipe.final_learning_rate) * (1 + np.cos(np.pi * share)) / 2


def _loss(values: dict[str, Any], w: dict[str, jax.Array], scale: float, rows: np.ndarray, counted: np.ndarray) -> jax.Array:
    """The mean loss of the tokens that count."""
    chosen = log_probs(values, w, scale, rows)
    return -(chosen * counted).sum() / counted.sum()


def log_probs(values: dict[str, Any], w: dict[str, jax.Array], scale: float, rows: np.ndarray, heat: float = 1.0) -> jax.Array:
    """The log-probability of each token of rows after those before it: [rows, tokens - 1]."""
    return jnp.take_along_axis(all_log_probs(values, w, scale, rows, heat), rows[:, 1:, None], -1)[..., 0]


def all_log_probs(
    values: dict[str, Any], w: dict[str, jax.Array], scale: float, rows: np.ndarray, heat: float = 1.0
) -> jax.Array:
    """Those of all tokens, [rows, tokens - 1, vocabulary], at a temperature. Weights are [layers, in, out]."""
    heads, keys, layers = (values[name] for name in ("num_attention_heads", "num_key_value_heads", "num_hidden_layers"))
    batch, count = rows.shape[0], rows.shape[1] - 1
    size = values["hidden_size"] // heads
    angles = (np.arange(count)[:, None] * oracle.inverse_frequencies(values)).astype(np.float32)
    cosine, sine = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]

    def linear(x: jax.Array, name: str, layer: int) -> jax.Array:
        y = x @ w[f"{name}.weight"][layer]
        return y + scale * (x @ w[f"{name}.lora_a"][layer]) @ w[f"{name}.lora_b"][layer] if f"{name}.lora_a" in w else y

    def norm(x: jax.Array, weight: jax.Array) -> jax.Array:
        return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + values["rms_norm_eps"]) * weight

    def rotate(x: jax.Array) -> jax.Array:
        left, right = jnp.split(x, 2, -1)
        return jnp.concatenate([left * cosine - right * sine, right * cosine + left * sine], -1)

    x = w["embedding.weight"][rows[:, :-1]]
    for layer in range(layers):
        y = norm(x, w["attention_norm.weight"][layer])
        q = rotate(linear(y, "attention.query", layer).reshape(batch, count, heads, size))
        k = rotate(linear(y, "attention.key", layer).reshape(batch, count, keys, size))
        v = linear(y, "attention.value", layer).reshape(batch, count, keys, size)
        k, v = jnp.repeat(k, heads // keys, 2), jnp.repeat(v, heads // keys, 2)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / size**0.5
        chances = jax.nn.softmax(jnp.where(np.tri(count, dtype=bool), scores, -jnp.inf), -1)
        x = x + linear(jnp.einsum("bhqk,bkhd->bqhd", chances, v).reshape(batch, count, -1), "attention.output", layer)
        y = norm(x, w["mlp_norm.weight"][layer])
        x = x + linear(jax.nn.silu(linear(y, "mlp.gate", layer)) * linear(y, "mlp.up", layer), "mlp.down", layer)
    logits = norm(x, w["final_norm.weight"]) @ w["head.weight"]
    return jax.nn.log_softmax(logits / heat, -1)

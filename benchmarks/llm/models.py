"""The models that all systems load, as directories in Hugging Face's layout."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

MOST_POSITIONS = 16384  # of the models on a CPU: a prompt of 8,000 tokens fits

SHARPER = np.float32(4)  # times the weights of attention


def write_models(folder: Path, size: str, windows: Sequence[int]) -> dict[int, Path]:
    """The directory of a model with random weights, by its window; that of 0 attends to every token so far. One file of float32 weights.

    With a window it is a Mistral model: a Llama whose layers all have a sliding window. Attention has larger weights than the rest, so that
    it is not flat: else texts would soon repeat one token, and say little of whether systems agree.
    """
    from benchmarks.decode import random_model
    from tempo_llm.saving import save_model

    config, weights = random_model(size, MOST_POSITIONS)
    weights = {name: matrix * SHARPER if name.startswith("attention.") else matrix for name, matrix in weights.items()}
    whole = folder / "full"
    save_model(whole, config, weights, "float32")
    values = json.loads((whole / "config.json").read_text(encoding="utf-8"))
    directories = {0: whole}
    for window in sorted({*windows} - {0}):
        directories[window] = folder / f"window-{window}"
        write_config(directories[window], values, window)
        os.link(whole / "model.safetensors", directories[window] / "model.safetensors")
    return directories


def write_config(directory: Path, values: Mapping[str, Any], window: int = 0) -> None:
    """A directory with a configuration alone: its weights are random ones, which `random_weights` gives."""
    kind = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": window} if window else {}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps({**values, **kind}, indent=2), encoding="utf-8")


def has_weights(directory: Path) -> bool:
    return (directory / "model.safetensors").exists()


def random_weights(config: Any, dtype: str) -> dict[str, Any]:
    """Weights in the form of `tempo_llm.load_weights`, drawn on JAX's device; the head is tied to the embedding."""
    import jax
    import jax.numpy as jnp

    from tempo_llm.checkpoint import layer_weights

    layers, hidden = config.num_hidden_layers, config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {"head.weight": (hidden, config.vocab_size)}
    shapes |= {name: (layers, *weight.stored_shape) for name, weight in layer_weights(config).items()}
    weights = {"final_norm.weight": jnp.ones(hidden, dtype)}
    draw = jax.jit(lambda key, shape: jax.random.normal(key, shape, dtype) * 0.02, static_argnums=1)
    for number, (name, shape) in enumerate(shapes.items()):
        is_norm = name.endswith("norm.weight")
        weights[name] = jnp.ones(shape, dtype) if is_norm else draw(jax.random.key(number), shape)
    return weights


def random_prompts(vocabulary: int, rows: int, tokens: int) -> list[list[int]]:
    """Prompts of random tokens, the same in each run."""
    prompts: list[list[int]] = np.random.default_rng(1).integers(3, vocabulary, (rows, tokens)).tolist()
    return prompts

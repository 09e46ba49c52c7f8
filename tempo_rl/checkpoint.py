"""Checkpoints: parameters as safetensors, with JSON metadata in the same file, so that the two stay together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from tempo_core.files import write_whole
from tempo_rl.errors import CheckpointError
from tempo_rl.recipe import Recipe, make_recipe

FORMAT = "tempo-rl-1"


@dataclass(frozen=True)
class Checkpoint:
    """Parameters by name, the recipe that trained them, and the iterations and environment steps of training so far."""

    parameters: dict[str, np.ndarray]
    recipe: Recipe
    iterations: int
    env_steps: int


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    """Write under a temporary name, then rename: a file with the name `path` is always complete."""
    meta = {
        "recipe": checkpoint.recipe.model_dump(mode="json"),
        "iterations": checkpoint.iterations,
        "env_steps": checkpoint.env_steps,
    }
    arrays = {name: np.ascontiguousarray(value) for name, value in checkpoint.parameters.items()}
    data = safetensors.numpy.save(arrays, metadata={"format": FORMAT, "tempo_rl": json.dumps(meta, sort_keys=True)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, data)
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in `path`. Raises `CheckpointError` if it is missing, damaged, or not a checkpoint of tempo-rl."""
    if not path.is_file():
        raise CheckpointError(f"there is no checkpoint {path}")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            parameters = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} ({path.stat().st_size} bytes) cannot be read: {error}",
            hint="the file is truncated, or not a safetensors file",
        ) from error
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"{path} is a safetensors file, but not a checkpoint of tempo-rl", hint=f"its format must be {FORMAT}"
        )
    try:
        meta: Mapping[str, Any] = json.loads(metadata["tempo_rl"])
        recipe = make_recipe(meta["recipe"], where=str(path))
        return Checkpoint(parameters, recipe, int(meta["iterations"]), int(meta["env_steps"]))
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path} has damaged metadata: {error}") from error

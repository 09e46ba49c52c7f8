"""What a command reports: to programs JSON on the standard output, one object a line; to people tables."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tempo_core.runs.logger import Row
from tempo_rl.recording import Recorder
from tempo_rl.streams import result

if TYPE_CHECKING:
    from tempo_rl.checkpoint import Checkpoint
    from tempo_rl.recipe import Recipe


def say_json(values: Mapping[str, object]) -> None:
    """Print an object on a line of its own: paths as texts, arrays as lists, and null for numbers that are not finite."""
    result(json.dumps(_plain(values), allow_nan=False))


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """The lines of a table, whose columns are as wide as their longest cells. Those with the numbers `right` end at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = (f"{cell:>{widths[k]}}" if k in right else f"{cell:<{widths[k]}}" for k, cell in enumerate(row))
        lines.append("  ".join(cells).rstrip())
    return lines


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def start_of(recipe: Recipe, checkpoint: Checkpoint | None) -> dict[str, object]:
    """What is known of a training run before it begins, or goes on from a checkpoint."""
    return {
        "algorithm": recipe.algorithm,
        "env": recipe.env.id,
        "seed": recipe.seed,
        "iterations": recipe.iterations,
        "steps_per_iteration": recipe.num_envs * recipe.num_steps,
        "resumed_at": 0 if checkpoint is None else checkpoint.iterations,
    }


class Reports(Recorder):
    """The iterations and evaluations of a training run as events."""

    def log(self, row: Row) -> None:
        say_json({"event": "iteration", **row})

    def evaluation(self, row: Row) -> None:
        say_json({"event": "evaluation", **row})

"""Run directories: `config.yaml`, `metrics.csv`, `checkpoints/`, `result.json`, and `profile.svg` of a profiled run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tempo_core.files import write_whole
from tempo_rl.errors import CheckpointError, RunError
from tempo_rl.recipe import Recipe, dump_recipe


@dataclass(frozen=True)
class RunDirectory:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        return self.path / "result.json"

    @property
    def profile(self) -> Path:
        return self.path / "profile.svg"

    def checkpoint(self, env_steps: int) -> Path:
        """The path of the checkpoint after `env_steps` environment steps. The names sort by age."""
        return self.checkpoints / f"step_{env_steps:012d}.safetensors"

    def latest_checkpoint(self) -> Path:
        """The newest checkpoint. Raises `CheckpointError` if there is none."""
        paths = sorted(self.checkpoints.glob("step_*.safetensors"))
        if not paths:
            hint = "a run saves one at its end; to save earlier, train with save_every=10"
            raise CheckpointError(f"{self.path} holds no checkpoint", hint=hint)
        return paths[-1]

    def write_config(self, recipe: Recipe) -> None:
        write_whole(self.config, dump_recipe(recipe).encode())

    def write_result(self, result: Mapping[str, Any]) -> None:
        write_whole(self.result, (json.dumps(result, indent=2) + "\n").encode())


def create_run(path: Path, overwrite: bool = False) -> RunDirectory:
    """An empty run directory. Raises `RunError` if `path` cannot be created, or holds a run already (unless `overwrite`)."""
    run = RunDirectory(path)
    if path.is_file():
        raise RunError(f"{path} is a file", hint="give a directory: --out DIR")
    if run.metrics.exists() or run.result.exists():
        if not overwrite:
            raise RunError(
                f"{path} holds a run already", hint="choose another directory with --out DIR, or replace the run with --overwrite"
            )
        for old in (run.metrics, run.result, run.profile, *run.checkpoints.glob("step_*.safetensors")):
            old.unlink(missing_ok=True)
    try:
        run.checkpoints.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{path} cannot be created: {error}") from error
    return run


def new_run_path(name: str, seed: int) -> Path:
    """A path in runs/ that does not exist yet."""
    number = 0
    while (path := Path("runs") / f"{name}-seed{seed}-{number:03d}").exists():
        number += 1
    return path


def find_checkpoint(path: Path) -> Path:
    """A checkpoint's path: `path` itself, or the newest checkpoint in the run directory `path`. Raises `CheckpointError`."""
    if path.is_dir():
        return RunDirectory(path).latest_checkpoint()
    if not path.exists():
        raise CheckpointError(f"there is no run or checkpoint {path}")
    return path

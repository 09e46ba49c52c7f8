"""Which run directory `tempo-rl train` uses, and from which checkpoint it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tempo_core.runs.directory import check_one_way
from tempo_rl.checkpoint import Checkpoint, load_checkpoint
from tempo_rl.errors import CheckpointError, RunError
from tempo_rl.recipe import Recipe, make_recipe
from tempo_rl.references import foreign_references
from tempo_rl.rundir import RunDirectory, create_run

MAY_DIFFER = (
    "save_every",
    "keep",
    "track",
    "wandb",
    "eval_episodes",
    "eval_max_steps",
    "env_timeout",
    "eval_every",
    "total_timesteps",  # at least the steps that are done
    "jsonl",
    "tensorboard",
)  # keys that the program does not depend on, and the bound of its outermost loop, which may change


def chosen_run(
    recipe: Recipe, name: str, out: Path | None, overwrite: bool, resume: str, say: Callable[[str], None]
) -> tuple[RunDirectory | None, Checkpoint | None]:
    """The run directory, and the checkpoint to go on from (None: from the start). No directory if the run is finished.

    `resume` is "off", "auto" (the run in `out`, or the newest unfinished one of this name and seed; a new run if there is none), or the
    path of a run or a checkpoint. Raises `RunError` and `CheckpointError`.
    """
    check_one_way(overwrite, resume)
    if resume not in ("off", "auto"):
        return _resumed(recipe, Path(resume), say)
    run = RunDirectory.usual(name, recipe.seed, resume == "auto") if out is None else RunDirectory(out)
    if resume == "off":
        return create_run(run.path, overwrite), None
    return _resumed(recipe, run.path, say) if run.all_checkpoints() else (_begun_early(recipe, run) or create_run(run.path), None)


def _begun_early(recipe: Recipe, run: RunDirectory) -> RunDirectory | None:
    """A run that ended before its first iteration was saved: it begins again in the same directory."""
    if not run.config.exists():
        return None
    run = replace(run, mode="overwrite")
    run.check()
    _check_recipe(recipe, run)
    return run


def _resumed(recipe: Recipe, path: Path, say: Callable[[str], None]) -> tuple[RunDirectory | None, Checkpoint | None]:
    if not path.exists():
        raise RunError(f"there is no run {path}", hint="to begin a new run if there is none: --resume auto")
    file = None if path.is_dir() else path
    run = RunDirectory(path if file is None else path.parent.parent, "resume")
    if file is not None and file.parent != run.checkpoints:
        raise RunError(f"{path} is not in the directory of a run", hint="give the run directory, or a file of its checkpoints/")
    run.check()
    if not run.config.exists():
        raise RunError(f"{run.path} is not the directory of a run: it has no config.yaml")
    _check_recipe(recipe, run)
    allowed = foreign_references(recipe.model_dump(mode="json"), True)
    env = (
        None if recipe.env.source is None else recipe.env.model_dump(mode="json")
    )  # its class is here, whatever the run calls it
    checkpoint = load_checkpoint(file, False, allowed, env) if file is not None else _newest(run, allowed, env, say)
    if recipe.iterations < checkpoint.iterations:
        raise RunError(
            f"the run in {run.path} has done {checkpoint.env_steps:,} steps, more than total_timesteps={recipe.total_timesteps:,}",
            hint=f"give more: total_timesteps={2 * checkpoint.env_steps}",
        )
    if file is None and run.is_finished() and recipe.iterations == checkpoint.iterations:
        say(f"{run.path} is finished; play with it: tempo-rl eval {run.path}")
        return None, None
    return run, checkpoint


def _newest(run: RunDirectory, allowed: list[str], env: Mapping[str, Any] | None, say: Callable[[str], None]) -> Checkpoint:
    """The newest checkpoint that can be read, and imports nothing but what is `allowed`."""
    problem = CheckpointError(f"{run.path} holds no checkpoint", hint="replace the run: --overwrite")
    for path in run.all_checkpoints():
        try:
            return load_checkpoint(path, False, allowed, env)
        except CheckpointError as error:
            say(f"note: {error.message}; looking for an earlier checkpoint")
            problem = error
    raise problem


def _check_recipe(recipe: Recipe, run: RunDirectory) -> None:
    """Raise `RunError` if a run has other values of keys that its program depends on. It imports no more than `recipe` does."""
    ours = recipe.model_dump(mode="json", exclude=set(MAY_DIFFER))
    values = _on_the_class_of(recipe, run.values())
    allowed, named = foreign_references(ours), foreign_references(values)
    if others := [name for name in named if name not in allowed]:
        run.check_same({}, {}, [f"it would import {', '.join(others)}"])
    before = make_recipe(values, where=str(run.config))
    run.check_same(*(each.model_dump(mode="json", exclude=set(MAY_DIFFER)) for each in (recipe.going_on_from(before), before)))


def _on_the_class_of(recipe: Recipe, values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a run. A class that Python code gives has the same name with its module or without it, as in a script."""
    env, own = values.get("env"), recipe.env
    is_same = isinstance(env, Mapping) and str(env.get("id")).rpartition(":")[2] == own.id.rpartition(":")[2]
    return {**values, "env": {**env, "id": own.id}} if own.source is not None and is_same and env is not None else {**values}

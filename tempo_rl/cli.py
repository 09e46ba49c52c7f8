"""The `tempo-rl` command: training, and the table of all commands."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tempo_core.compiling import leave
from tempo_core.runs.recipe import check_flags
from tempo_rl import completion
from tempo_rl.commands.app import (
    CacheDirectory,
    Devices,
    MemoryLimit,
    NoCache,
    Overrides,
    app,
    chosen_cache,
    errors_as_messages,
    of_the_system,
    others_aside,
    say_imports,
    shows_traceback,
)
from tempo_rl.commands.machine import doctor
from tempo_rl.commands.recipes import copy_recipe, list_recipes, plan, validate
from tempo_rl.commands.runs import compare_runs, evaluate, plot_runs
from tempo_rl.errors import RecipeError
from tempo_rl.recipe import Recipe, load_recipe
from tempo_rl.references import foreign_references
from tempo_rl.reports import Reports, say_json, start_of
from tempo_rl.rundir import recipe_of
from tempo_rl.streams import echo

if TYPE_CHECKING:
    from tempo_rl.rundir import RunDirectory
    from tempo_rl.train import Result


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="[RECIPE]",
            help="A YAML file, or the name of a shipped recipe (`tempo-rl ls` lists them). With --resume PATH, that of the run if left out.",
            autocompletion=completion.recipes,
        ),
    ] = "",
    overrides: Overrides = None,
    out: Annotated[Path | None, typer.Option(help="Run directory [default: runs/RECIPE-seedS-NNN].")] = None,
    seed: Annotated[int | None, typer.Option(help="The recipe's seed.")] = None,
    total_timesteps: Annotated[int | None, typer.Option(help="Environment steps to train for.")] = None,
    num_envs: Annotated[int | None, typer.Option(help="How many environments run side by side.")] = None,
    save_every: Annotated[
        int | None, typer.Option(help="Iterations between checkpoints (0: ten checkpoints in the run).")
    ] = None,
    keep: Annotated[int | None, typer.Option(help="How many numbered checkpoints to keep.")] = None,
    eval_every: Annotated[
        int | None, typer.Option(help="Iterations between evaluations while training (0: no evaluations).")
    ] = None,
    memory_limit: MemoryLimit = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, gpu or tpu [default: the choice of JAX].")] = None,
    devices: Devices = "1",
    track: Annotated[
        bool | None, typer.Option("--track/--no-track", help="Log to Weights & Biases (offline without a key).")
    ] = None,
    tensorboard: Annotated[
        bool | None, typer.Option("--tensorboard/--no-tensorboard", help="Write TensorBoard's event files.")
    ] = None,
    wandb_project: Annotated[str | None, typer.Option(help="Log to this project in Weights & Biases, as with --track.")] = None,
    wandb_entity: Annotated[str | None, typer.Option(help="The user or team in Weights & Biases.")] = None,
    wandb_group: Annotated[str | None, typer.Option(help="The group of the run in Weights & Biases.")] = None,
    wandb_tags: Annotated[str | None, typer.Option(metavar="A,B", help="Tags of the run in Weights & Biases.")] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar [default: on a terminal].")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan before the run.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time goes, and draw it to profile.json. Use it on a short run.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run that --out already holds.")] = False,
    resume: Annotated[
        str,
        typer.Option(
            metavar="auto|PATH|off",
            help="Go on with a run. auto: the run in --out, else the newest unfinished run of this recipe and seed. PATH: a run directory or a checkpoint.",
        ),
    ] = "off",
    time_limit: Annotated[float | None, typer.Option(min=0.0, help="Stop and save after this many minutes.")] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print iterations, evaluations and the result as lines of JSON, and everything else to standard error."
        ),
    ] = False,
    picture: Annotated[
        bool, typer.Option("--picture/--no-picture", help="Draw the returns at the end of the run, to returns.png.")
    ] = True,
    capture_video: Annotated[
        bool,
        typer.Option(
            "--capture-video", help="Record an episode of the trained policy at the end of the run, to episode.mp4 or .gif."
        ),
    ] = False,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Train an agent by RECIPE. The run directory gets config.yaml, metrics.csv, checkpoints/ and result.json.

    To go on with a run that ended early: --resume auto. If the environment gives its state, the result is as if the run had never stopped.
    """
    flags = {
        "seed": seed,
        "total_timesteps": total_timesteps,
        "num_envs": num_envs,
        "save_every": save_every,
        "keep": keep,
        "eval_every": eval_every,
        "memory_limit": memory_limit,
        "tensorboard": tensorboard,
        "wandb.project": wandb_project,
        "wandb.entity": wandb_entity,
        "wandb.group": wandb_group,
        "wandb.tags": None if wandb_tags is None else json.dumps([tag.strip() for tag in wandb_tags.split(",")]),
        "track": True if track is None and wandb_project is not None else track,
    }
    flag_overrides = [f"{key}={json.dumps(v) if isinstance(v, bool) else v}" for key, v in flags.items() if v is not None]

    def say(text: str) -> None:
        echo(text, err=as_json)

    with errors_as_messages():
        check_flags(overrides or [], flag_overrides)
        if resume not in ("off", "auto") and (not recipe or "=" in recipe):  # the recipe of the run itself
            overrides = [recipe, *(overrides or [])] if recipe else overrides
            recipe = str(recipe_of(Path(resume)))
        elif not recipe:
            raise RecipeError("which recipe?", hint="name one (`tempo-rl ls` lists them), or go on with a run: --resume RUN")
        with others_aside(as_json):
            loaded = load_recipe(recipe, [*(overrides or []), *flag_overrides], say_imports)
        from tempo_core.runs.device import use_device

        chosen_devices = use_device(device, devices)
        from tempo_rl.resume import chosen_run
        from tempo_rl.tracking import Tracker
        from tempo_rl.train import TrainingError
        from tempo_rl.train import train as run_training

        run, checkpoint = chosen_run(loaded, Path(recipe).stem, out, overwrite, resume, say)
        if run is None:
            return
        show_progress = sys.stderr.isatty() if progress is None else progress
        if as_json:
            say_json({"event": "start", "run": run.path, **start_of(loaded, checkpoint)})
        many = f"{loaded.count} members, each " if loaded.count > 1 else ""
        say(f"{loaded.algorithm} on {loaded.env.id}: {many}{loaded.iterations} iterations, seed {loaded.seed}, into {run.path}")
        kept, seconds = chosen_cache(cache, no_cache), None if time_limit is None else time_limit * 60.0
        try:
            with others_aside(as_json):
                outcome = run_training(
                    loaded, run, show_progress, say, plan, kept, profile=profile, resume=checkpoint, time_limit=seconds,
                    devices=chosen_devices, recorders=[Tracker(Reports(), "the standard output", say)] if as_json else (), film=capture_video,
                )  # fmt: skip
        except TrainingError as error:
            _say_result(loaded, run, error.outcome.result, as_json)
            raise
    _say_result(loaded, run, outcome.result, as_json)
    by_signal = outcome.stopped in signal.Signals.__members__  # whoever sends one waits for the end
    is_trained = outcome.result["env_steps"] == loaded.iterations * loaded.num_envs * loaded.num_steps
    is_begun = outcome.result["env_steps"] > 0
    if picture and is_begun and (is_trained or not by_signal):
        from tempo_rl.plot import draw

        with errors_as_messages():
            say(f"the returns are drawn in {draw([run.path], run.picture)}")
    if outcome.video is not None:
        say(f"an episode is recorded in {outcome.video}")
    if outcome.video_error is not None:
        with errors_as_messages():
            raise outcome.video_error
    if outcome.stopped is not None:
        steps, saved_steps = outcome.result["env_steps"], outcome.saved_steps
        saved = (
            "nothing is saved" if not saved_steps else "saved" if saved_steps == steps else f"{saved_steps:,} of them are saved"
        )
        place = f" in {run.checkpoints}" if saved_steps else ""
        done = f"after {steps:,} steps; {saved}{place}" if steps else "before the first iteration ended"
        echo(f"stopped by {outcome.stopped} {done}", err=True)
        again = ["tempo-rl", "train", recipe, *(overrides or []), *flag_overrides, "--out", str(run.path), "--resume", "auto"]
        echo(f"go on with: {shlex.join(again)}", err=True)
        raise typer.Exit(128 + signal.Signals[outcome.stopped] if by_signal else 0)
    from tempo_rl.own import known

    references = foreign_references(loaded.model_dump(mode="json"), True)
    flag = "" if set(references) <= set(known(run.latest)) else " --trust"  # the list of own runs could not be written
    say(f"play with it: tempo-rl eval {run.path}{flag}")


def _say_result(recipe: Recipe, run: RunDirectory, result: Result, as_json: bool) -> None:
    if as_json:
        say_json({"event": "result", "run": run.path, **result})
        return
    echo(
        f"{result['env_steps']:,} steps in {result['seconds']:.1f} s; {result['steps_per_second']:,.0f} steps/s without "
        f"{result['compile_seconds']:.1f} s of compiling and {result['evaluation_seconds']:.1f} s of evaluation; "
        f"compiled {result['compiles']} XLA programs" + (f"; {result['loads']} came from the cache" if result["loads"] else "")
    )
    if result["eval_return_mean"] is not None:
        echo(
            f"greedy evaluation over {result.get('eval_episodes', recipe.count * recipe.eval_episodes)} episodes: "
            f"return {result['eval_return_mean']:.1f} ± {result['eval_return_std']:.1f}"
        )


COMMANDS: dict[str, Callable[..., None]] = {
    "train": train, "eval": evaluate, "plot": plot_runs, "compare": compare_runs, "plan": plan, "ls": list_recipes, "cp": copy_recipe, "validate": validate,
    "doctor": doctor,
}  # fmt: skip
for _name, _command in COMMANDS.items():
    app.command(_name)(_command)


def main() -> None:
    """The console script. GPU memory is allocated as it is needed, unless XLA_PYTHON_CLIENT_PREALLOCATE says otherwise."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        app()
    except OSError as error:  # of an output, outside of `errors_as_messages`
        if shows_traceback():
            raise
        with suppress(OSError):
            echo(f"error: {of_the_system(error)}", fg=typer.colors.RED, err=True)
        _leave(1)
        raise SystemExit(1) from error
    except SystemExit as end:
        _leave(end.code if isinstance(end.code, int) else end.code is not None)
        raise


def _leave(status: int) -> None:
    """End the process at once if something goes on that nobody waits for: a compilation, a `close()`."""
    leave(status)
    if "tempo_rl.env.closing" in sys.modules:
        from tempo_rl.env.closing import leave as leave_work

        leave_work(status)

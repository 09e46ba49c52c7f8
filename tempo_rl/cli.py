"""The `tempo-rl` command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tempo_core.compiling import leave
from tempo_core.runs.commands import announcing
from tempo_core.runs.plain import dump_yaml
from tempo_core.runs.recipe import check_flags
from tempo_core.runs.stop import exit_status
from tempo_rl import completion
from tempo_rl.errors import RecipeError, RLError, RunError
from tempo_rl.recipe import Recipe, dump_recipe, find_recipe, known_part, load_recipe, read_values, shipped_recipes
from tempo_rl.references import foreign_references
from tempo_rl.rundir import recipe_of
from tempo_rl.streams import aside, echo, kept

if TYPE_CHECKING:
    from tempo_rl.train import Result

app = typer.Typer(
    name="tempo-rl",
    help="Train and evaluate reinforcement-learning agents. A recipe says what to train; Tempo compiles it to one program.",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A YAML file, or the name of a shipped recipe (`tempo-rl ls` lists them).",
        autocompletion=completion.recipes,
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...",
        help="Change keys of the recipe: learning-rate=1e-3 env.kwargs.gravity=9.8.",
        autocompletion=completion.overrides,
    ),
]


CacheDirectory = Annotated[
    Path | None,
    typer.Option("--cache", metavar="DIR", help="Directory for compiled programs [default: $TEMPO_CACHE, else ~/.cache/tempo]."),
]
NoCache = Annotated[bool, typer.Option("--no-cache", help="Compile again, and keep no compiled program.")]
MemoryLimit = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="The most memory of the program, such as 2GiB: the fastest form of it that fits."),
]
Devices = Annotated[
    str,
    typer.Option(metavar="N|auto", help="Spread the environments over N devices (on a CPU: cores); auto: as many as help."),
]


_show_traceback = False


def chosen_cache(directory: Path | None, off: bool) -> str | bool:
    """The `cache` of a `tempo_core.Config`: the usual place, unless flags say otherwise."""
    return False if off else True if directory is None else str(directory)


@contextmanager
def errors_as_messages() -> Iterator[None]:
    """Turn a user's mistake into its message and exit status 1, without a traceback, and say what XLA compiles for long."""
    try:
        with announcing(lambda text: echo(text, err=True)):
            yield
    except KeyboardInterrupt as error:
        echo("interrupted; nothing was changed", fg=typer.colors.RED, err=True)
        raise typer.Exit(exit_status(error)) from error
    except OSError as error:
        if _show_traceback:
            raise
        echo(f"error: {_of_the_system(error)}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error
    except Exception as error:
        if _show_traceback:
            raise
        compiler = sys.modules.get("tempo_core.errors")  # not imported for commands that need no compiler
        if not isinstance(error, (RLError, compiler.TempoError) if compiler else RLError):
            raise
        echo(f"error: {error}", fg=typer.colors.RED, err=True)
        raise typer.Exit(1) from error


def _of_the_system(error: OSError) -> str:
    """What the system refuses: a name of hundreds of letters, a full disk behind the standard output."""
    name = str(error.filename or "the output")
    return f"{name if len(name) <= 80 else name[:77] + '...'}: {error.strerror or error}"


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from importlib.metadata import version

        echo(f"tempo-rl {version('tempo-dl')}")
        raise typer.Exit


@app.callback(help=app.info.help)
def before_any_command(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    show_traceback: Annotated[bool, typer.Option("--traceback", help="Show errors with their Python traceback.")] = False,
) -> None:
    """Set the options that JAX reads when it is imported."""
    global _show_traceback
    _show_traceback = show_traceback
    context.with_resource(kept())
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # allocate GPU memory only as it is needed


@app.command()
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
    wandb_project: Annotated[str | None, typer.Option(help="Log to this project in Weights & Biases, as with --track.")] = None,
    wandb_entity: Annotated[str | None, typer.Option(help="The user or team in Weights & Biases.")] = None,
    wandb_group: Annotated[str | None, typer.Option(help="The group of the run in Weights & Biases.")] = None,
    wandb_tags: Annotated[str | None, typer.Option(metavar="A,B", help="Tags of the run in Weights & Biases.")] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar [default: on a terminal].")
    ] = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the plan before the run.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time goes, and draw it to profile.svg. Use it on a short run.")
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
        bool, typer.Option("--json", help="Print the result as JSON, and everything else to standard error.")
    ] = False,
    picture: Annotated[
        bool, typer.Option("--picture/--no-picture", help="Draw the returns at the end of the run, to returns.png.")
    ] = True,
    capture_video: Annotated[
        bool,
        typer.Option("--capture-video", help="Record an episode of the trained policy at the end of the run, to episode.gif."),
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
        with _aside(as_json):
            loaded = load_recipe(recipe, [*(overrides or []), *flag_overrides], _say_imports)
        from tempo_core.runs.device import use_device

        chosen_devices = use_device(device, devices)
        from tempo_rl.resume import chosen_run
        from tempo_rl.train import TrainingError
        from tempo_rl.train import train as run_training

        run, checkpoint = chosen_run(loaded, Path(recipe).stem, out, overwrite, resume, say)
        if run is None:
            return
        show_progress = sys.stderr.isatty() if progress is None else progress
        many = f"{loaded.count} members, each " if loaded.count > 1 else ""
        say(f"{loaded.algorithm} on {loaded.env.id}: {many}{loaded.iterations} iterations, seed {loaded.seed}, into {run.path}")
        kept, seconds = chosen_cache(cache, no_cache), None if time_limit is None else time_limit * 60.0
        try:
            with _aside(as_json):
                outcome = run_training(
                    loaded, run, show_progress, say, plan, kept, profile=profile, resume=checkpoint, time_limit=seconds,
                    devices=chosen_devices,
                )  # fmt: skip
        except TrainingError as error:
            _say_result(loaded, error.outcome.result, as_json)
            raise
    _say_result(loaded, outcome.result, as_json)
    by_signal = outcome.stopped in signal.Signals.__members__  # whoever sends one waits for the end
    is_trained = outcome.result["env_steps"] == loaded.iterations * loaded.num_envs * loaded.num_steps
    is_begun = outcome.result["env_steps"] > 0
    if picture and is_begun and (is_trained or not by_signal):
        from tempo_rl.plot import draw

        with errors_as_messages():
            say(f"the returns are drawn in {draw([run.path], run.picture)}")
    if capture_video and is_begun and not by_signal and "eval_episodes" not in outcome.result:  # no signal ended the evaluation
        from tempo_rl.checkpoint import for_member, load_checkpoint
        from tempo_rl.video import watch

        with errors_as_messages(), _aside(as_json):
            shown = for_member(load_checkpoint(run.latest_checkpoint(), trust=True))
            watch(shown.recipe, shown.parameters, 1, loaded.seed, run.video, cache=kept)
            say(f"an episode is recorded in {run.video}")
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


def _aside(is_wanted: bool) -> AbstractContextManager[object]:
    """Inside, what environments print goes to the standard error, if that is wanted."""
    return aside() if is_wanted else nullcontext()


def _say_imports(references: list[str]) -> None:
    echo(f"note: this recipe imports {', '.join(references)}", err=True)


def _say_result(recipe: Recipe, result: Result, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(result, indent=2))
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


@app.command("eval")
def evaluate(
    run: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_CHECKPOINT", help="A run directory (for its newest checkpoint), or a checkpoint file."),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes to play.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the evaluation's environments.")] = 0,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run the Python code that a checkpoint from elsewhere names: algorithms, policies, environments."
        ),
    ] = False,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the first episode, as .gif, .webp or .png (animated).")
    ] = None,
    render: Annotated[bool, typer.Option("--render", help="Show the episodes in a window.")] = False,
    max_steps: Annotated[
        int | None, typer.Option(min=1, help="The most steps of an episode [default: the recipe's eval_max_steps].")
    ] = None,
    progress: Annotated[
        bool | None, typer.Option("--progress/--no-progress", help="Show a progress bar [default: on a terminal].")
    ] = None,
    member: Annotated[
        int | None, typer.Option(min=0, help="The member of a run with many [default: the one with the best recent returns].")
    ] = None,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Play episodes with a trained policy, which takes its best action in each step. Ctrl-C ends it, with the result so far."""
    with errors_as_messages():
        from tempo_rl.checkpoint import for_member, load_checkpoint
        from tempo_rl.evaluate import evaluate as run_evaluation
        from tempo_rl.own import known
        from tempo_rl.progress import EvaluationProgress
        from tempo_rl.rundir import find_checkpoint

        path = find_checkpoint(run)
        checkpoint = for_member(load_checkpoint(path, trust, known(path)), member)
        kept, loaded = chosen_cache(cache, no_cache), checkpoint.recipe
        loaded = loaded if max_steps is None else loaded.model_copy(update={"eval_max_steps": max_steps})
        show_progress = sys.stderr.isatty() if progress is None else progress
        with EvaluationProgress(episodes, show_progress, lambda text: echo(text, err=True)) as show:
            if video is None and not render:
                result = run_evaluation(loaded, checkpoint.parameters, episodes, seed, kept, show=show)
            else:
                from tempo_rl.video import watch

                result = watch(loaded, checkpoint.parameters, episodes, seed, video, render, kept, show=show)
    echo(f"{path}: {checkpoint.recipe.env.id} after {checkpoint.env_steps:,} steps")
    echo(
        f"greedy evaluation over {len(result.returns)} episodes: return {result.mean:.1f} ± {result.std:.1f} "
        f"(least {result.returns.min():.1f}, greatest {result.returns.max():.1f}), mean length {result.lengths.mean():.1f}"
    )
    if video is not None:
        echo(f"the first episode is in {video}")
    if len(result.returns) < episodes:
        echo(f"interrupted after {len(result.returns)} of {episodes} episodes", err=True)
        raise typer.Exit(128 + signal.SIGINT)


@app.command("plot")
def plot_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories. Runs of one recipe become one curve, their mean.")
    ],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("returns.png"),
    metric: Annotated[str, typer.Option(help="A column of metrics.csv.")] = "episodic_return",
) -> None:
    """Draw the returns of runs over environment steps. Runs of several seeds also get the 95 % interval of their mean."""
    with errors_as_messages():
        from tempo_rl.plot import draw

        echo(f"drawn in {draw(runs, out, metric)}")


def with_limit(overrides: list[str] | None, memory_limit: str | None) -> list[str]:
    """Overrides with that of the flag --memory-limit."""
    flags = [] if memory_limit is None else [f"memory_limit={memory_limit}"]
    check_flags(overrides or [], flags)
    return [*(overrides or []), *flags]


@app.command()
def plan(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Print each statement and each store on its own line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the memory of all tensors and its peaks, as JSON.")] = False,
    memory_picture: Annotated[
        Path | None,
        typer.Option("--memory-picture", metavar="FILE", help="Draw the memory, statement by statement, as .svg."),
    ] = None,
    devices: Devices = "1",
    memory_limit: MemoryLimit = None,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Print the schedule, the stores and the device programs of the compiled program. Nothing is trained."""
    with errors_as_messages():
        loaded = load_recipe(recipe, with_limit(overrides, memory_limit), _say_imports)
        from tempo_core.runs.device import use_device

        chosen_devices = use_device(None, devices)
        from tempo_rl.train import plan as make_plan

        echo(make_plan(loaded, full, as_json, memory_picture, chosen_cache(cache, no_cache), chosen_devices))


@app.command("ls")
def list_recipes() -> None:
    """List the shipped recipes."""
    with errors_as_messages():
        for name, path in shipped_recipes().items():
            loaded, _ = known_part(*read_values(str(path)))  # without importing what recipes of the working directory name
            echo(f"{name:20} {loaded.algorithm:14} {loaded.env.id:22} {loaded.total_timesteps:>12,} steps   {path}")


@app.command("cp")
def copy_recipe(
    recipe: RecipeArgument,
    target: Annotated[Path, typer.Argument(metavar="FILE", help="Where the copy goes; it must not exist.")],
) -> None:
    """Copy a recipe to FILE, for you to change."""
    with errors_as_messages():
        source = find_recipe(recipe)
        target = target / source.name if target.is_dir() else target
        if target.exists():
            raise RecipeError(f"{target} exists already")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        except OSError as error:
            raise RunError(f"{target} cannot be written: {error}") from error
    echo(f"{source} -> {target}")


@app.command()
def validate(
    recipe: RecipeArgument,
    overrides: Overrides = None,
    trust: Annotated[bool, typer.Option("--trust", help="Import your own code that the recipe names, and check it too.")] = False,
    memory_limit: MemoryLimit = None,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Check a recipe, make its environments, compile its program, and print the recipe with every key resolved.

    If the recipe names your own code, that code is imported and checked with --trust only.
    """
    with errors_as_messages():
        overrides = with_limit(overrides, memory_limit)
        values, where = read_values(recipe, overrides)
        references = foreign_references(values)
        if references and not trust:
            known, others = known_part(values, where)
            echo(dump_recipe(known) + (dump_yaml(others) if others else ""), nl=False)
            echo(f"# would import {', '.join(references)}; not imported, so only a part is checked. To check all: --trust")
            return
        from tempo_rl.train import check

        loaded = load_recipe(recipe, overrides, _say_imports)
        echo(dump_recipe(loaded), nl=False)
        check(loaded, chosen_cache(cache, no_cache))
    echo(f"# valid: {loaded.iterations} iterations of {loaded.num_envs * loaded.num_steps} steps")


@app.command()
def doctor(
    calibrate: Annotated[
        bool,
        typer.Option("--calibrate", help="Measure the speed of the device, for the cost model. This takes some seconds."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --calibrate: write the measured speeds to FILE. To use them, set TEMPO_MACHINE=FILE."
        ),
    ] = None,
) -> None:
    """Print the installed versions beside the tested ones, the devices, and the packages that are missing."""
    from tempo_core.runs.doctor import Extra, findings, is_able
    from tempo_rl.train import versions

    extras = (
        Extra("gymnasium", "rl", "environments"),
        Extra("flax", "rl", "functional environments"),
        Extra("wandb", "wandb", "--track"),
        Extra("tensorboardX", "tensorboard", "tensorboard=true"),
    )
    numbers = versions()
    for line in findings(numbers, extras):
        echo(line)
    if not is_able(numbers):
        raise typer.Exit(1)
    if calibrate:
        with errors_as_messages():
            from tempo_core import Machine

            machine = Machine.calibrated()
            echo(machine)
            if out is not None:
                machine.save(out)
                echo(f"written to {out}: TEMPO_MACHINE={out} uses it")
    elif out is not None:
        echo("error: --out has no effect without --calibrate", fg=typer.colors.RED, err=True)
        raise typer.Exit(1)


def main() -> None:
    """The console script. GPU memory is allocated as it is needed, unless XLA_PYTHON_CLIENT_PREALLOCATE says otherwise."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        app()
    except OSError as error:  # of an output, outside of `errors_as_messages`
        if _show_traceback:
            raise
        with suppress(OSError):
            echo(f"error: {_of_the_system(error)}", fg=typer.colors.RED, err=True)
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

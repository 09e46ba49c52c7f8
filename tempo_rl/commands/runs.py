"""Commands on runs: to evaluate them, and to draw them."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tempo_rl.commands.app import AsJson, CacheDirectory, NoCache, chosen_cache, errors_as_messages, others_aside
from tempo_rl.streams import echo

if TYPE_CHECKING:
    from tempo_rl.checkpoint import Checkpoint
    from tempo_rl.compare import Comparison, Score
    from tempo_rl.evaluate import Evaluation
    from tempo_rl.groups import Group


def evaluate(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_CHECKPOINT",
            help="A run directory (its newest checkpoint; with --best the best one), or a checkpoint file.",
        ),
    ],
    best: Annotated[
        bool, typer.Option("--best", help="Play with the checkpoint of the best returns while training, not with the newest one.")
    ] = False,
    env: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Play in this environment: an id, or my_module:MyEnv [default: that of the recipe]."),
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="How many episodes to play.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the evaluation's environments.")] = 0,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Run the Python code that a checkpoint from elsewhere names: algorithms, policies, environments."
        ),
    ] = False,
    video: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Record the first episode, as .gif, .webp, .png (animated) or .mp4.")
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
    as_json: AsJson = False,
    cache: CacheDirectory = None,
    no_cache: NoCache = False,
) -> None:
    """Play episodes with a trained policy, which takes its best action in each step. Ctrl-C ends it, with the result so far."""
    with errors_as_messages():
        from tempo_rl.checkpoint import for_member, load_checkpoint
        from tempo_rl.env.making import MissingEnvironment, like_in_modules
        from tempo_rl.errors import EnvError
        from tempo_rl.evaluate import evaluate as run_evaluation
        from tempo_rl.own import known
        from tempo_rl.progress import EvaluationProgress
        from tempo_rl.recipe import EnvRecipe
        from tempo_rl.reports import say_json
        from tempo_rl.rundir import find_checkpoint

        path = find_checkpoint(run, best)
        keys = None if env is None else EnvRecipe(env).model_dump(mode="json")
        checkpoint = for_member(load_checkpoint(path, trust, known(path), keys), member)
        kept, loaded = chosen_cache(cache, no_cache), checkpoint.recipe
        loaded = loaded if max_steps is None else loaded.model_copy(update={"eval_max_steps": max_steps})
        show_progress = sys.stderr.isatty() if progress is None else progress
        with others_aside(as_json), EvaluationProgress(episodes, show_progress, lambda text: echo(text, err=True)) as show:
            try:
                if video is None and not render:
                    result = run_evaluation(loaded, checkpoint.parameters, episodes, seed, kept, show=show)
                else:
                    from tempo_rl.video import watch

                    result = watch(loaded, checkpoint.parameters, episodes, seed, video, render, kept, show=show)
            except MissingEnvironment as error:
                if env is not None:
                    raise
                name = loaded.env.id.rpartition(":")[2]
                other = like_in_modules(name) or f"my_module:{name if name.isidentifier() else 'MyEnv'}"
                raise EnvError(error.message, hint=f"give the environment: --env {other}") from error
    if as_json:
        say_json({"checkpoint": path, **_description(checkpoint, result), "video": video})
    else:
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


def _description(checkpoint: Checkpoint, evaluation: Evaluation) -> dict[str, object]:
    """An evaluation, for programs."""
    return {
        "env": checkpoint.recipe.env.id,
        "env_steps": checkpoint.env_steps,
        "episodes": len(evaluation.returns),
        "return_mean": evaluation.mean,
        "return_std": evaluation.std,
        "length_mean": float(evaluation.lengths.mean()),
        "returns": evaluation.returns,
        "lengths": evaluation.lengths,
    }


def plot_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories. Runs of one recipe become one curve, their mean.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="The picture: .png, .svg or .pdf [default: returns.png of the run; of several, in plots/ of the first]."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="A column of metrics.csv.")] = "episodic_return",
    as_json: AsJson = False,
) -> None:
    """Draw the returns of runs over environment steps. Runs of several seeds also get the 95 % interval of their mean."""
    with errors_as_messages():
        from tempo_rl.plot import curves_of, draw_curves, usual_place
        from tempo_rl.reports import say_json

        curves = curves_of(runs, metric)
        out = usual_place(runs, metric) if out is None else out
        draw_curves(curves, out, metric)
        if not as_json:
            echo(f"drawn in {out}")
            return
        groups = [
            {
                **_group(curve.group),
                "steps": curve.steps,
                "mean": curve.mean,
                "low": curve.mean - curve.half_width,
                "high": curve.mean + curve.half_width,
            }
            for curve in curves
        ]
        say_json({"picture": out, "metric": metric, "groups": groups})


def compare_runs(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories. Runs that differ in the seed alone are one group.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The picture: .png, .svg or .pdf [default: plots/comparison.png of the first run].")
    ] = None,
    picture: Annotated[bool, typer.Option("--picture/--no-picture", help="Draw the comparison.")] = True,
    score: Annotated[
        str,
        typer.Option(
            metavar="evaluation|training",
            help="A run's score: the return of the greedy evaluation at its end, or of the last tenth of training.",
        ),
    ] = "evaluation",
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="ENV=LOW:HIGH",
            help="Returns of an environment that become 0 and 1, to compare over several environments. One for each.",
        ),
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, max=1_000_000, help="Resamples of the bootstrap.")] = 2_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare groups of runs: the interquartile mean of their scores, with 95 % intervals by a stratified bootstrap.

    Of two groups, it also gives the probability that a run of the better one has a greater score.
    """
    with errors_as_messages():
        from tempo_rl.compare import compare, draw, parsed_range
        from tempo_rl.errors import RunError
        from tempo_rl.reports import say_json
        from tempo_rl.rundir import RunDirectory

        if score not in ("evaluation", "training"):
            raise RunError(f"--score is {score!r}", hint="write --score evaluation or --score training")
        compared = compare(runs, cast("Score", score), dict(map(parsed_range, ranges or ())), resamples, seed)
        for note in compared.notes:
            echo(f"note: {note}", err=True)
        file = draw(compared, out or RunDirectory(runs[0]).plot("comparison")) if picture else None
        if as_json:
            say_json({**_comparison(compared), "resamples": resamples, "picture": file})
            return
        for line in _table(compared):
            echo(line)
        if file is not None:
            echo(f"drawn in {file}")


def _comparison(compared: Comparison) -> dict[str, object]:
    """A comparison, for programs."""

    def bounds(interval: tuple[float, float] | None) -> dict[str, object]:
        low, high = interval or (None, None)
        return {"low": low, "high": high}

    found = compared.improvement
    return {
        "score": compared.score,
        "is_scaled": compared.is_scaled,
        "groups": [
            {**_group(each.group), "scores": each.scores, "iqm": each.mean, **bounds(each.interval)} for each in compared.groups
        ],
        "improvement": None
        if found is None
        else {"label": found.better, "than": found.other, "probability": found.probability, **bounds(found.interval)},
    }


def _table(compared: Comparison) -> Iterator[str]:
    """A comparison, for people."""

    def shown(interval: tuple[float, float] | None, form: str) -> str:
        return "-" if interval is None else f"{interval[0]:{form}} to {interval[1]:{form}}"

    from tempo_rl.reports import aligned

    form = ".3f" if compared.is_scaled else ",.1f"
    rows = [("group", "runs", "interquartile mean", "95 % interval")]
    rows += [
        (each.group.label, str(len(each.scores)), f"{each.mean:{form}}", shown(each.interval, form)) for each in compared.groups
    ]
    yield from aligned(rows, right=(1, 2, 3))
    if (found := compared.improvement) is not None:
        interval = "" if found.interval is None else f" (95 % interval {shown(found.interval, '.2f')})"
        yield f"a run of {found.better} is better than one of {found.other} with the probability {found.probability:.2f}{interval}"


def _group(group: Group) -> dict[str, object]:
    return {"label": group.label, "env": group.env, "runs": group.runs, "seeds": group.seeds}

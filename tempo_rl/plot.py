"""Pictures of runs: their returns over the environment steps, and the mean of runs that differ in their seeds alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

import tempo_core as tp
from tempo_core.files import write_whole
from tempo_rl.errors import RunError
from tempo_rl.groups import Group, groups_of, title_of
from tempo_rl.rundir import RunDirectory

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve: TypeAlias = tuple[np.ndarray, np.ndarray]  # environment steps, and returns: one for each iteration in which episodes ended
POINTS = 200  # of a mean
TENSORS = 40  # in the picture of a plan
AXES = {  # what columns of metrics.csv are, with their units; others are pure numbers
    "episodic_return": "return of an episode (sum of rewards)",
    "episodic_length": "length of an episode (environment steps)",
    "episodes": "episodes that ended in an iteration (count)",
    "entropy": "entropy of the policy (nats)",
    "approx_kl": "KL divergence of an update (nats)",
}


@dataclass(frozen=True)
class GroupCurve:
    """The mean of a group's curves at some environment steps, and half the width of its 95 % interval (0 for one run)."""

    group: Group
    single: Curve | None  # before smoothing, if the group is one run
    steps: np.ndarray
    mean: np.ndarray
    half_width: np.ndarray


def curve_of(path: Path, metric: str = "episodic_return") -> Curve:
    """A column of a run's metrics over the steps, without the iterations that have none. Raises `RunError`."""
    file = path if path.suffix == ".csv" else RunDirectory(path).metrics
    try:
        with open(file, newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RunError(f"{path} is not a run: {file} cannot be read", hint="give run directories, such as runs/*") from error
    if not rows or metric not in rows[0]:
        columns = ", ".join(rows[0]) if rows else "no rows yet"
        raise RunError(f"{file} has no column {metric}", hint=f"it has {columns}")
    try:
        numbers = np.array([[float(row["env_steps"]), float(row[metric])] for row in rows])
    except (TypeError, ValueError, KeyError) as error:
        raise RunError(f"{file} holds something that is not a number: {error}") from error
    steps, values = numbers[np.isfinite(numbers[:, 1])].T
    return steps, values


def mean_of(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps, the mean of the curves there, and half the width of its 95 % interval (normal, from the deviation between runs)."""
    curves = [curve for curve in curves if len(curve[0])]
    first, last = max(steps[0] for steps, _ in curves), min(steps[-1] for steps, _ in curves)
    at = np.linspace(first, max(first, last), POINTS)
    values = np.array([np.interp(at, steps, smoothed(returns)) for steps, returns in curves])
    deviation = values.std(0, ddof=1) if len(values) > 1 else np.zeros(POINTS)
    return at, values.mean(0), 1.96 * deviation / np.sqrt(len(values))


def smoothed(values: np.ndarray) -> np.ndarray:
    """The mean of each value and those before it, over a twentieth of all."""
    width = max(1, len(values) // 20)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - width, 0)
    return (sums[ends] - sums[begins]) / (ends - begins)


def curves_of(runs: Sequence[Path], metric: str = "episodic_return") -> list[GroupCurve]:
    """The curves of runs, smoothed, those of one recipe with several seeds as one. Runs in which no episode has ended are left out.

    Raises `RunError` and `RecipeError` for what is not a run.
    """
    means = []
    for group in groups_of(runs):
        curves = [curve_of(path, metric) for path in group.runs]
        if any(len(steps) for steps, _ in curves):
            means.append(GroupCurve(group, curves[0] if len(curves) == 1 else None, *mean_of(curves)))
    return means


def draw(runs: Sequence[Path], file: Path, metric: str = "episodic_return") -> Path:
    """Draw a metric of runs into `file` (.png, .svg or .pdf). Runs of one recipe with several seeds become their mean and its interval.

    Raises `RunError` for what is not a run, and if the file cannot be written.
    """
    return draw_curves(curves_of(runs, metric), file, metric)


def draw_curves(curves: Sequence[GroupCurve], file: Path, metric: str = "episodic_return") -> Path:
    """Draw curves over the environment steps. The legend says how the recipes differ. Raises `RunError` if the file cannot be written."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, curve in enumerate(curves):
        color, count = f"C{number % 10}", len(curve.group.runs)
        if curve.single is not None:
            axes.plot(*curve.single, color=color, alpha=0.25, linewidth=0.8)
        seeds = f", mean of {count} seeds" if count > 1 else ""
        axes.plot(curve.steps, curve.mean, color=color, label=f"{curve.group.label}{seeds}")
        low, high = curve.mean - curve.half_width, curve.mean + curve.half_width
        axes.fill_between(curve.steps, low, high, color=color, alpha=0.2, linewidth=0)
    axes.set_title(title_of([curve.group for curve in curves]))
    axes.set_xlabel("environment steps (count)")
    axes.set_ylabel(AXES.get(metric, metric.replace("_", " ")))
    if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize="small")
    return save(figure, file)


def usual_place(runs: Sequence[Path], metric: str = "episodic_return") -> Path:
    """Where a picture of runs goes if nobody says it: `returns.png` of one run, else `plots/` of the first run."""
    first, name = RunDirectory(runs[0]), "returns" if metric == "episodic_return" else metric
    count = len({path.resolve() for path in runs})
    return first.picture if count == 1 and name == "returns" else first.plot(name if count == 1 else f"{name}-of-{count}-runs")


def draw_plan(program: tp.Program, file: Path) -> Path:
    """Draw the schedule of a program into `file`: its statements in their order, and from which to which each of the largest tensors lives.

    Raises `RunError` if the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    plan = program.plan()
    usage = plan.usage
    largest = sorted(sorted(usage.tensors, key=lambda tensor: -tensor.bytes)[:TENSORS], key=lambda tensor: tensor.first)
    figure = Figure(figsize=(9, 2 + 0.16 * len(largest)), layout="constrained")
    axes = figure.add_subplot()
    colors = {place: f"C{number}" for number, place in enumerate(sorted({tensor.place for tensor in largest}))}
    for row, tensor in enumerate(largest):
        axes.barh(row, tensor.last - tensor.first + 1, 0.8, tensor.first, color=colors[tensor.place])
    axes.set_yticks(range(len(largest)), [f"{tensor.name}: {tensor.bytes:,} B" for tensor in largest], fontsize=6)
    axes.invert_yaxis()
    names = [(f"{moment.loops}: " if moment.loops else "") + (moment.statement or moment.name) for moment in usage.moments]
    axes.set_xticks([at + 0.5 for at in range(len(names))], names, fontsize=6, rotation=90)
    axes.set_title(f"the largest tensors; at most {plan.peak_device_bytes:,} bytes on the device")
    axes.set_xlabel("statements in their order (loops: statement)")
    axes.set_ylabel("tensors (bytes)")
    axes.legend([Patch(color=color) for color in colors.values()], [*colors], fontsize="small")
    return save(figure, file)


def save(figure: Figure, file: Path) -> Path:
    """Write a picture as .png, .svg or .pdf. Raises `RunError`."""
    picture = io.BytesIO()
    try:
        if file.parent.name == "plots":
            file.parent.mkdir(exist_ok=True)
        figure.savefig(picture, format=file.suffix.removeprefix(".") or "png", dpi=120, bbox_inches="tight")  # wide labels too
        write_whole(file, picture.getvalue())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be written: {error}", hint="give a name with .png, .svg or .pdf") from error
    return file

"""Pictures of runs: their returns over the environment steps, and the mean of runs that differ in their seeds alone."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from tempo_core.files import write_whole
from tempo_rl.errors import RunError
from tempo_rl.rundir import RunDirectory

Curve: TypeAlias = tuple[np.ndarray, np.ndarray]  # environment steps, and returns: one for each iteration in which episodes ended
POINTS = 200  # of a mean


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


def draw(runs: Sequence[Path], file: Path, metric: str = "episodic_return") -> Path:
    """Draw a metric of runs into `file` (.png, .svg or .pdf). Runs of one recipe with several seeds become their mean and its interval.

    Raises `RunError` for what is not a run, and if the file cannot be written.
    """
    from matplotlib.figure import Figure

    groups: dict[str, list[Path]] = {}
    for path in {path.resolve(): path for path in runs}.values():  # a run that is given twice is one seed
        recipe = RunDirectory(path).values() | {"seed": 0}  # as plain data: a picture imports nothing that a run names
        for values, metrics in _members(path, recipe):
            groups.setdefault(json.dumps({**recipe, **values}, sort_keys=True, default=str), []).append(metrics)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, members in enumerate(groups.values()):
        curves, color = [curve_of(path, metric) for path in members], f"C{number % 10}"
        if not any(len(steps) for steps, _ in curves):
            continue  # no episode has ended
        if len(members) == 1:
            axes.plot(*curves[0], color=color, alpha=0.25, linewidth=0.8)
        at, mean, half = mean_of(curves)
        seeds = f", mean of {len(members)} seeds" if len(members) > 1 else ""
        axes.plot(at, mean, color=color, label=f"{_label(members[0])}{seeds}")
        axes.fill_between(at, mean - half, mean + half, color=color, alpha=0.2, linewidth=0)
    axes.set_xlabel("environment steps")
    axes.set_ylabel(metric.replace("_", " "))
    if axes.get_legend_handles_labels()[1]:
        axes.legend()
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=file.suffix.removeprefix(".") or "png", dpi=120)
        write_whole(file, picture.getvalue())
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be written: {error}", hint="give a name with .png, .svg or .pdf") from error
    return file


def _members(path: Path, recipe: Mapping[str, Any]) -> list[tuple[dict[str, object], Path]]:
    """The files of a run's members, each with the keys of the sweep that it has; the run itself, if it has no members."""
    sweep = recipe.get("sweep") or {}
    keys, count = sorted(sweep), int(recipe.get("seeds") or 1)
    points = [dict(zip(keys, values, strict=True)) for values in itertools.product(*(sweep[key] for key in keys))]
    if count * len(points) == 1:
        return [({}, path)]
    run = RunDirectory(path)
    return [({"sweep": point, "seeds": 1}, run.member(k)) for k, point in enumerate(p for p in points for _ in range(count))]


def _label(path: Path) -> str:
    run = path.parent.parent if path.suffix == ".csv" else path
    recipe = RunDirectory(run).values()
    env = recipe.get("env")
    values = dict(_members(run, recipe)[int(path.stem)][0].get("sweep") or {}) if path.suffix == ".csv" else {}  # type: ignore[call-overload]
    of = "".join(f", {key}={value:g}" for key, value in values.items())
    return of.removeprefix(", ") if of else f"{recipe.get('algorithm')} on {env.get('id') if isinstance(env, dict) else env}"

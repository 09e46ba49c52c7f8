"""Comparison of groups of runs: the interquartile mean of their scores, with intervals by a stratified bootstrap.

Source: Agarwal et al., 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv:2108.13264). The numbers are
those of its library rliable, computed by SciPy, which JAX has already: rliable's other needs cannot be imported beside a new pandas.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from tempo_rl.errors import RunError
from tempo_rl.groups import Group, groups_of, title_of
from tempo_rl.plot import AXES, curve_of, save
from tempo_rl.rundir import RunDirectory

Score: TypeAlias = Literal["evaluation", "training"]
Interval: TypeAlias = tuple[float, float]
Range: TypeAlias = tuple[float, float]  # the returns that become 0 and 1

TRIMMED = 0.25  # of the scores, at each end
LAST = 0.1  # of a run's steps, whose returns are its score of training
RESAMPLES = 2_000


@dataclass(frozen=True)
class GroupScores:
    """The scores of a group's runs, its interquartile mean, and the 95 % interval of that (None with one run in an environment)."""

    group: Group
    scores: tuple[float, ...]  # one for each run
    mean: float
    interval: Interval | None


@dataclass(frozen=True)
class Improvement:
    """The probability that a run of `better` has a greater score than one of `other` (ties count half), and its 95 % interval."""

    better: str
    other: str
    probability: float
    interval: Interval | None


@dataclass(frozen=True)
class Comparison:
    """Groups in the order of their means, the greatest first. `improvement` is there for two groups in the same environments."""

    score: Score
    is_scaled: bool
    groups: tuple[GroupScores, ...]
    improvement: Improvement | None
    notes: tuple[str, ...] = ()


def compare(
    runs: Sequence[Path],
    score: Score = "evaluation",
    ranges: Mapping[str, Range] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Comparison:
    """Compare runs, in groups that differ in more than the seed.

    The score of a run is the mean return of the greedy evaluation at its end, or (`training`) of the episodes in the last tenth of its
    steps. Each environment is a group of its own, unless `ranges` says for each environment which returns become 0 and 1. Then a group
    has runs in several environments, and each resample of the bootstrap draws as many runs of each environment as there are.
    Raises `RunError` for a run without a score, and for environments that `ranges` lacks.
    """
    groups = groups_of(runs, without="env" if ranges else None)
    if not groups:
        raise RunError("there is no run to compare", hint="tempo-rl compare runs/*")
    strata = [_strata(group, score, ranges) for group in groups]
    rng = np.random.default_rng(seed)
    scored = []
    for group, by_env in zip(groups, strata, strict=True):
        samples = [np.array(values) for _, values in sorted(by_env.items())]
        mean = float(interquartile_mean(*samples))
        scores = tuple(_score(run, score, ranges) for run in group.runs)
        scored.append(GroupScores(group, scores, mean, _interval(samples, interquartile_mean, resamples, rng)))
    improvement = _improvement(scored, strata, resamples, rng) if len(scored) == 2 else None
    ordered = sorted(scored, key=lambda each: -each.mean)
    return Comparison(score, bool(ranges), tuple(ordered), improvement, tuple(_notes(groups)))


def interquartile_mean(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
    """The mean of all samples without the lowest and the highest quarter."""
    from scipy import stats  # half a second

    return np.asarray(stats.trim_mean(np.concatenate(samples, axis), TRIMMED, axis))


def probability_of_improvement(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
    """How often a score of the first half of the samples is greater than one of the second half, in the mean over the environments."""
    half = len(samples) // 2
    chances = []
    for one, other in zip(samples[:half], samples[half:], strict=True):
        left, right = np.moveaxis(one, axis, -1)[..., :, None], np.moveaxis(other, axis, -1)[..., None, :]
        chances.append(((left > right) + 0.5 * (left == right)).mean((-2, -1)))
    return np.asarray(np.mean(chances, axis=0))


def parsed_range(text: str) -> tuple[str, Range]:
    """The environment and the two returns in `CartPole-v1=0:500`. Raises `RunError`."""
    parts = re.fullmatch(r"(.+)=([^:=]+):([^:=]+)", text)
    try:
        if parts is None:
            raise ValueError
        low, high = float(parts[2]), float(parts[3])
        if not (np.isfinite([low, high]).all() and low != high):
            raise ValueError
    except ValueError as error:
        raise RunError(
            f"--range {text} is not an environment with two returns that differ", hint="write --range CartPole-v1=0:500"
        ) from error
    assert parts is not None
    return parts[1], (low, high)


def draw(comparison: Comparison, file: Path) -> Path:
    """Draw the interquartile means with their intervals, and the scores of the runs, as .png, .svg or .pdf. Raises `RunError`."""
    from matplotlib.figure import Figure

    labels = [each.group.label for each in comparison.groups]
    figure = Figure(figsize=(6 + 0.08 * max(map(len, labels)), 1.4 + 0.5 * len(labels)), layout="constrained")
    axes = figure.add_subplot()
    for row, each in enumerate(comparison.groups):
        color = f"C{row % 10}"
        if each.interval is not None:
            low, high = each.interval
            axes.barh(row, high - low, 0.6, low, color=color, alpha=0.4)
        axes.plot([each.mean, each.mean], [row - 0.3, row + 0.3], color=color, linewidth=2)
        axes.plot(each.scores, [row] * len(each.scores), "o", color="black", markersize=3, alpha=0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_title(title_of([each.group for each in comparison.groups]))
    unit = "0 and 1 are the returns of --range" if comparison.is_scaled else AXES["episodic_return"]
    axes.set_xlabel(f"interquartile mean, its 95 % interval, and the runs\n{comparison.score}: {unit}")
    return save(figure, file)


def _score(run: Path, score: Score, ranges: Mapping[str, Range] | None) -> float:
    value = _evaluation(run) if score == "evaluation" else _training(run)
    if not ranges:
        return value
    env = _env(run)
    if env not in ranges:
        raise RunError(f"{run} is a run in {env}, which has no --range", hint=f"write --range {env}=LOWEST:HIGHEST")
    low, high = ranges[env]
    return (value - low) / (high - low)


def _strata(group: Group, score: Score, ranges: Mapping[str, Range] | None) -> dict[str, list[float]]:
    """The scores of a group's runs by their environment."""
    strata: dict[str, list[float]] = {}
    for run in group.runs:
        strata.setdefault(_env(run), []).append(_score(run, score, ranges))
    return strata


def _run_of(run: Path) -> RunDirectory:
    """The directory of a run, or of one member of a run with many, whose file of metrics it is."""
    return RunDirectory(run.parent.parent if run.suffix == ".csv" else run)


def _env(run: Path) -> str:
    env = _run_of(run).values().get("env")
    return str(env.get("id") if isinstance(env, Mapping) else env)


def _evaluation(run: Path) -> float:
    try:
        result = json.loads(_run_of(run).result.read_bytes())
        value = (result["members"][int(run.stem)] if run.suffix == ".csv" else result)["eval_return_mean"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        value = None
    if not isinstance(value, (int, float)) or not np.isfinite(value):
        raise RunError(
            f"{run} has no evaluation at its end",
            hint="let it come to its end, with eval_episodes=20. Or compare the returns of training: --score training",
        )
    return float(value)


def _training(run: Path) -> float:
    steps, returns = curve_of(run)
    if not len(steps):
        raise RunError(f"in {run} no episode has ended", hint="train for more steps, or compare evaluations: --score evaluation")
    return float(returns[steps > steps[-1] * (1.0 - LAST)].mean())


def _interval(samples: Sequence[np.ndarray], statistic: object, resamples: int, rng: np.random.Generator) -> Interval | None:
    """The 95 % interval of a statistic, by its percentiles over resamples of each sample alone; None for a sample of one."""
    if min(map(len, samples)) < 2:
        return None
    from scipy import stats

    found = stats.bootstrap(
        samples, statistic, n_resamples=resamples, method="percentile", paired=False, vectorized=True, rng=rng
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def _improvement(
    scored: Sequence[GroupScores], strata: Sequence[Mapping[str, Sequence[float]]], resamples: int, rng: np.random.Generator
) -> Improvement | None:
    first, second = (0, 1) if scored[0].mean >= scored[1].mean else (1, 0)
    if sorted(strata[0]) != sorted(strata[1]):
        return None
    samples = [np.array(values) for at in (first, second) for _, values in sorted(strata[at].items())]
    probability = float(probability_of_improvement(*samples))
    interval = _interval(samples, probability_of_improvement, resamples, rng)
    return Improvement(scored[first].group.label, scored[second].group.label, probability, interval)


def _notes(groups: Sequence[Group]) -> list[str]:
    """What makes the numbers less than they seem."""
    notes = []
    for group in groups:
        counts = Counter((_env(run), seed) for run, seed in zip(group.runs, group.seeds, strict=True))
        twice = [f"{seed}" for (_, seed), count in counts.items() if count > 1]
        if twice:
            notes.append(f"{group.label}: several runs have the seed {', '.join(twice)}: their scores are not independent")
        alone = [env for env, count in Counter(map(_env, group.runs)).items() if count == 1]
        if alone:
            notes.append(f"{group.label}: one run in {', '.join(alone)} gives no interval: train more seeds")
    return notes

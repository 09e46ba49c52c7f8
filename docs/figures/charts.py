"""The charts of the front page, from the records in `benchmarks/results/`. Each is a function of the records to its series, and one that draws.

A chart whose record is not there is not drawn. The series stand in the SVG too, as its description: a test compares them with the records.
"""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MACHINE = "two-core-cpu"
BESIDE = "learning-beside"  # the learning of cases that peers run too
INK, MUTED, GRID = "#24292f", "#57606a", "#d8dee4"
COLORS = {
    "tempo": "#3b6fb6",
    "JAX by hand": "#d9822b",
    "transformers": "#9a5fb0",
    "Stable-Baselines3": "#9a5fb0",
    "PyTorch by hand": "#c8453f",
    "REINFORCE": "#c8453f",
    "5-step returns": "#3b6fb6",
}
OTHERS = ("#3d8f4e", "#8c6d31", "#3b6fb6", "#c8453f")  # sides without a color of their own
RATIO = "time of Tempo / time of JAX by hand"

Series = dict[str, Any]


def record(benchmark: str) -> dict[str, Any] | None:
    """The record of a benchmark on the machine of the front page, or None."""
    path = RESULTS / f"{benchmark}-{MACHINE}.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


# -- series -----------------------------------------------------------------------------------------------------------


def learning(recorded: Mapping[str, Any]) -> Series:
    """By side, for PPO on CartPole: the steps, and the median, least and greatest return over the seeds."""
    (case,) = [case for case in recorded["cases"] if case["case"] == "CartPole, PPO"]
    return _curves(case)


def algorithms(recorded: Mapping[str, Any]) -> Series:
    """The same by case, of all cases."""
    return {case["case"]: _curves(case) for case in recorded["cases"]}


def _curves(case: Mapping[str, Any]) -> Series:
    series: Series = {}
    for side, runs in case["runs"].items():
        points: dict[int, list[float]] = {}
        for run in runs:
            for step, value in run["curve"]:
                points.setdefault(step, []).append(value)
        full = {step: values for step, values in sorted(points.items()) if len(values) == len(runs)}
        if 2 * len(full) < min(len(run["curve"]) for run in runs):
            full = _interpolated([run["curve"] for run in runs])
        series[side] = {
            "steps": list(full),
            "median": [statistics.median(values) for values in full.values()],
            "least": [min(values) for values in full.values()],
            "greatest": [max(values) for values in full.values()],
            "seeds": len(runs),
            "seconds": case["seconds"][side],
        }
    return series


def _interpolated(curves: list[list[tuple[int, float]]]) -> dict[int, list[float]]:
    """The returns of all curves at the steps of the first one, where all have begun and none has ended."""
    first, last = max(curve[0][0] for curve in curves), min(curve[-1][0] for curve in curves)
    steps = [step for step, _ in curves[0] if first <= step <= last]
    lines = [np.interp(steps, *zip(*curve, strict=True)) for curve in curves]
    return {step: [round(float(line[k]), 2) for line in lines] for k, step in enumerate(steps)}


def decoding(recorded: Mapping[str, Any]) -> Series:
    """By side: positions, and milliseconds a token."""
    series: Series = {}
    for case in recorded["cases"]:
        if case["case"].startswith("curve "):
            sides = {side: row for side, row in case["ms_per_token"].items() if not side.startswith("JAX by hand, ")}
            for side, figures in sides.items():
                line = series.setdefault(side, {"positions": [], "ms": []})
                line["positions"].append(case["length"])
                line["ms"].append(figures["median"])
    return series


def memory(recorded: Mapping[str, Any]) -> Series:
    """By side: environments, and megabytes planned and measured."""
    series: Series = {}
    for case in (case for case in recorded["cases"] if "envs" in case):
        for side, figures in case["bytes"].items():
            _add(series, side, "environments", case["envs"], figures)
    return series


def pictures(recorded: Mapping[str, Any]) -> Series:
    """The same for n-step TD, over the number of steps."""
    series: Series = {}
    for case in (case for case in recorded["cases"] if case["case"].startswith("n-step TD on pictures")):
        for side, figures in case["bytes"].items():
            _add(series, side, "steps", case["steps"], figures)
    return series


def caches(recorded: Mapping[str, Any]) -> Series:
    """The same for decoding, by pattern, over the number of tokens. By hand, the cache is the same for all patterns."""
    series: Series = {}
    for case in (case for case in recorded["cases"] if "tokens" in case):
        pattern = case["case"].split(",")[0]
        _add(series, pattern, "tokens", case["tokens"], case["bytes"]["tempo"])
        if pattern == "causal attention":
            _add(series, "JAX by hand", "tokens", case["tokens"], case["bytes"]["JAX by hand"])
    return series


def _add(series: Series, name: str, sizes: str, size: int, figures: Mapping[str, int]) -> None:
    """Add a size to a line, with its megabytes."""
    line = series.setdefault(name, {sizes: [], "planned": [], "measured": []})
    line[sizes].append(size)
    line["planned"].append(figures["planned"] / 1e6)
    line["measured"].append(figures["grown"] / 1e6)


def episodes(recorded: Mapping[str, Any]) -> Series:
    """By side: megabytes planned at each moment of the program, and megabytes measured at milliseconds since the start."""
    (case,) = [case for case in recorded["cases"] if "over_time" in case]
    series: Series = {}
    for side, figures in case["over_time"].items():
        curve = figures["curve"]
        series[side] = {"planned": [size / 1e6 for size in figures["moments"]], "ms": curve["ms"]}
        series[side]["measured"] = [size / 1e6 for size in curve["bytes"]]
    return series


def classics(recorded: Mapping[str, Any]) -> Series:
    """The classics, and Tempo's time over that of JAX by hand, the least first."""
    ratios = {case["case"]: case["ratio"]["median"] for case in recorded["cases"] if "ratio" in case}
    ordered = sorted(ratios.items(), key=lambda each: each[1])
    return {"programs": [name for name, _ in ordered], "ratios": [ratio for _, ratio in ordered]}


# -- drawings ---------------------------------------------------------------------------------------------------------


def draw_learning(figure: Any, series: Series) -> None:
    axes = figure.subplots()
    _draw_curves(axes, series)
    seeds = next(iter(series.values()))["seeds"]
    axes.set_title(f"CartPole, PPO: return (median, least and greatest of {seeds} seeds)")


def draw_cases(figure: Any, series: Series) -> None:
    every = figure.subplots((len(series) + 1) // 2, 2, squeeze=False).flatten()
    for axes in every[len(series) :]:
        axes.set_axis_off()
    for axes, (case, curves) in zip(every, series.items(), strict=False):
        _draw_curves(axes, curves)
        axes.set_title(case)


def _draw_curves(axes: Any, series: Series) -> None:
    for side, line in _colored(series):
        axes.fill_between(line["steps"], line["least"], line["greatest"], color=line["color"], alpha=0.18, linewidth=0)
        label = f"{side}: {line['seconds']:.0f} s from a cold start"
        axes.plot(line["steps"], line["median"], color=line["color"], label=label)
    axes.set_xlabel("steps in the environment")
    if all(least >= 0 for line in series.values() for least in line["least"]):
        axes.set_ylim(0, 1.04 * max(greatest for line in series.values() for greatest in line["greatest"]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:.0f}k")
    axes.legend(frameon=False, loc="lower right")


def draw_decoding(figure: Any, series: Series) -> None:
    axes = figure.subplots()
    for side, line in _colored(series):
        axes.plot(line["positions"], line["ms"], color=line["color"], marker="o", markersize=3.5, label=side)
    axes.set_title("Decoding, 5M parameters, one row: ms a token over the length of the text")
    axes.set_xscale("log", base=2)
    axes.set_xticks(next(iter(series.values()))["positions"])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("positions")
    axes.legend(frameon=False)


def draw_memory(figure: Any, series: Series) -> None:
    _draw_sizes(figure.subplots(), series, "environments", "PPO, 250 steps")


def draw_pictures(figure: Any, series: Series) -> None:
    axes = figure.subplots()
    _draw_sizes(axes, series, "steps", "n-step TD on pictures")
    axes.loglog()
    for axis, ticks in ((axes.xaxis, next(iter(series.values()))["steps"]), (axes.yaxis, (5, 10, 50, 100, 500, 1000))):
        axis.set_ticks(ticks, [f"{tick:,}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(3, 1500)


def draw_caches(figure: Any, series: Series) -> None:
    axes = figure.subplots()
    _draw_sizes(axes, series, "tokens", "Decoding")
    axes.set_ylim(0, 1.4 * axes.get_ylim()[1])  # room for the legend
    axes.legend(frameon=False, ncols=2)


def _draw_sizes(axes: Any, series: Series, sizes: str, work: str) -> None:
    for side, line in _colored(series):
        axes.plot(line[sizes], line["planned"], color=line["color"], label=side)
        axes.plot(line[sizes], line["measured"], color=line["color"], linestyle="none", marker="o")
    axes.set_title(f"{work}: megabytes planned (lines) and measured (dots)")
    axes.set_xlabel(sizes)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def draw_episodes(figure: Any, series: Series) -> None:
    planned, measured = figure.subplots(1, 2, sharey=True, width_ratios=(1, 2.4))
    for side, line in _colored(series):
        ends = range(len(line["planned"]) + 1)
        planned.stairs(line["planned"], ends, color=line["color"], baseline=None, linewidth=1.5)
        measured.plot(line["ms"], line["measured"], color=line["color"], label=side)
    planned.set_title("Planned, MB")
    planned.set_xlabel("moments of the program")
    planned.set_xticks([])
    planned.set_ylim(bottom=0)
    measured.set_title("Measured, MB")
    measured.set_xlabel("milliseconds since the start of the run")
    measured.legend(frameon=False, loc="center")


def draw_classics(figure: Any, series: Series) -> None:
    axes = figure.subplots()
    ratios = series["ratios"]
    colors = [COLORS["tempo"] if ratio <= 1 else COLORS["JAX by hand"] for ratio in ratios]
    axes.bar(range(len(ratios)), [ratio - 1 for ratio in ratios], bottom=1, color=colors, width=0.75)
    axes.axhline(1, color=MUTED, linewidth=1)
    axes.set_yscale("log")
    ticks = [tick for tick in (0.05, 0.1, 0.25, 0.5, 1, 2, 4) if ratios[0] / 2 < tick < ratios[-1] * 2]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title(f"{len(ratios)} classical programs: {RATIO}")
    axes.set_xlabel("programs, the fastest first; below 1, Tempo is faster")
    axes.set_xticks([])


def _colored(series: Series) -> list[tuple[str, dict[str, Any]]]:
    others = iter(OTHERS)
    return [(side, {**line, "color": COLORS.get(side) or next(others)}) for side, line in series.items()]


@dataclass(frozen=True)
class Chart:
    """A chart: what it is in words, the benchmark whose record it shows, what it shows of it, and how it is drawn."""

    about: str
    benchmark: str
    series: Callable[[Mapping[str, Any]], Series]
    draw: Callable[[Any, Series], None]
    size: tuple[float, float] = (6.4, 3.2)  # inches

    def recorded(self) -> Series | None:
        """What the chart shows today, or None without a record."""
        content = record(self.benchmark)
        return None if content is None else self.series(content)


CHARTS: Mapping[str, Chart] = {
    "learning": Chart("Return over the steps in the environment, for PPO on CartPole", BESIDE, learning, draw_learning),
    "beside": Chart("Return over the steps in the environment, ours and the peers'", BESIDE, algorithms, draw_cases, (9.0, 5.6)),
    "algorithms": Chart(
        "Return over the steps in the environment, for each algorithm", "learning", algorithms, draw_cases, (9.0, 8.0)
    ),
    "budget": Chart(
        "Return over the steps in the environment, for continuous control", "learning-budget", algorithms, draw_cases, (9.0, 5.2)
    ),
    "members": Chart(
        "Return over the steps in the environment, for many seeds and a sweep in one run",
        "learning-members",
        algorithms,
        draw_cases,
        (9.0, 2.8),
    ),
    "decoding": Chart("Milliseconds a token over the length of the text", "decode-curve", decoding, draw_decoding),
    "memory": Chart("Memory over the number of environments, planned and measured", "memory", memory, draw_memory),
    "pictures": Chart("Memory of n-step TD on pictures over the number of steps", "memory", pictures, draw_pictures),
    "episodes": Chart(
        "Memory of REINFORCE and of 5-step returns over a run, planned and measured",
        "memory",
        episodes,
        draw_episodes,
        (6.8, 3.0),
    ),
    "caches": Chart("Memory of decoding over the number of tokens, by attention pattern", "memory", caches, draw_caches),
    "classics": Chart("The time of each classical program over that of JAX written by hand", "classics", classics, draw_classics),
}


def svg(name: str, series: Series) -> str:
    """A chart as SVG, the same for the same series."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {
        "svg.hashsalt": name, "svg.fonttype": "path", "font.size": 9, "axes.titlesize": 9.5, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.edgecolor": GRID, "axes.labelcolor": MUTED, "axes.titlecolor": INK, "text.color": INK,
        "xtick.color": MUTED, "ytick.color": MUTED, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
        "axes.grid.axis": "y", "grid.color": GRID, "axes.axisbelow": True, "legend.fontsize": 8.5,
    }  # fmt: skip
    with pyplot.rc_context(style):
        figure = pyplot.figure(figsize=CHARTS[name].size, layout="constrained")
        CHARTS[name].draw(figure, series)
        written = io.StringIO()
        described = {"Date": None, "Title": name, "Description": json.dumps(series)}
        figure.savefig(written, format="svg", facecolor="white", metadata=described)
        pyplot.close(figure)
    return written.getvalue()

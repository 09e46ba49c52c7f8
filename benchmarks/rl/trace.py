"""What a training process says of itself: steps, return and clocks after each iteration.

It needs no package but Python's own: a peer may run under another interpreter, which has neither Tempo nor JAX.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from statistics import fmean
from typing import Any, TypedDict

Recipe = Mapping[str, Any]  # the values of a recipe of ours
Curve = list[tuple[int, float]]  # steps and returns, where episodes ended


class Member(TypedDict):
    """One of many members of a run: what tells its recipe from others', its seed, and its curve."""

    label: str
    seed: int
    curve: Curve


@dataclass
class Trace:
    """The reports of one process, in order. Seconds count from its start; CPU seconds are those of all its threads."""

    began: float  # the clock on the wall
    imported: float = 0.0  # seconds
    steps: list[int] = field(default_factory=list)  # in the environment, so far
    returns: list[float | None] = field(
        default_factory=list
    )  # the mean of the episodes that ended in the iteration; None without one
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)  # of a run with many

    def ready(self, *packages: str) -> None:
        """All is imported. The versions of `packages` are kept."""
        self.imported = time.time() - self.began
        self.versions = {package: metadata.version(package) for package in packages}

    def add(self, steps: int, value: float | None = None) -> None:
        """An iteration is done."""
        self.steps.append(int(steps))
        self.returns.append(None if value is None or math.isnan(value) else float(value))
        self.seconds.append(time.time() - self.began)
        self.cpu_seconds.append(time.process_time())

    def print(self) -> None:
        """The last line of the process, which `read` takes."""
        print(json.dumps(asdict(self)), flush=True)

    @staticmethod
    def read(printed: str) -> Trace:
        return Trace(**json.loads(printed.splitlines()[-1]))

    # -- figures ------------------------------------------------------------------------------------------------------

    @property
    def curve(self) -> Curve:
        """Steps and returns, where episodes ended."""
        return [(step, value) for step, value in zip(self.steps, self.returns, strict=True) if value is not None]

    def solved(self, enough: float, points: int = 1) -> tuple[int, float] | None:
        """The steps and the seconds after the first iteration at which the mean of the last `points` returns is enough; None if there is none."""
        last: deque[float] = deque(maxlen=points)
        for step, value, seconds in zip(self.steps, self.returns, self.seconds, strict=True):
            if value is not None:
                last.append(value)
                if len(last) == points and fmean(last) >= enough:
                    return step, seconds
        return None

    @property
    def _middle(self) -> int:
        """The report from which speeds are taken: some programs compile again in their first iterations."""
        return (len(self.steps) - 1) // 2

    def iteration_seconds(self) -> float:
        """The mean over the second half of the reports."""
        return (self.seconds[-1] - self.seconds[self._middle]) / (len(self.seconds) - 1 - self._middle)

    def steps_per_second(self) -> float:
        """Over the second half of the reports, so without compiling."""
        return (self.steps[-1] - self.steps[self._middle]) / (self.seconds[-1] - self.seconds[self._middle])

    def steps_per_cpu_second(self) -> float:
        return (self.steps[-1] - self.steps[self._middle]) / (self.cpu_seconds[-1] - self.cpu_seconds[self._middle])

    def start_seconds(self) -> float:
        """The seconds after the imports that are beyond those of the iterations: setting up and compiling."""
        return self.seconds[self._middle] - self.imported - (self._middle + 1) * self.iteration_seconds()


def from_command(description: str | None) -> tuple[Recipe, Trace]:
    """The options that every training process takes: a recipe's values as JSON, and when it was started."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=json.loads, help="the values of a recipe, as JSON")
    parser.add_argument("--began", type=float, default=None, help="the clock on the wall when the process was started")
    options = parser.parse_args()
    return options.recipe, Trace(time.time() if options.began is None else options.began)


def thinned(curve: Curve, most: int = 200) -> Curve:
    """A curve of at most so many points: means of neighbours, at the steps of the last of them."""
    each = -(-len(curve) // most) or 1
    groups = [curve[first : first + each] for first in range(0, len(curve), each)]
    return [(group[-1][0], math.fsum(value for _, value in group) / len(group)) for group in groups]

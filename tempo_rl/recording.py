"""What a run tells others while it trains: metrics, evaluations, what the machine does, the plan, a film of an episode."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tempo_core.runs.logger import LineFile, Row

EVERY = 10.0  # seconds between two rows about the machine


class JSONLLogger(LineFile):
    """A file with one JSON object per iteration; null where a number is not finite."""

    def log(self, row: Row) -> None:
        """Append `row`. Raises `RunError`."""
        values = {name: value if math.isfinite(value) else None for name, value in row.items()}
        self.append(json.dumps(values) + "\n")


@dataclass(frozen=True)
class Film:
    """Pictures of an episode, uint8 (height, width, 3) each, how many of them are a second, and the file that has them."""

    file: Path
    frames: Sequence[np.ndarray]
    fps: float


class Recorder:
    """A receiver of what a run tells. Each method may be left out. All rows have `iteration` and `env_steps`."""

    def log(self, row: Row) -> None:
        """The metrics of an iteration."""

    def evaluation(self, row: Row) -> None:
        """An evaluation: mean and deviation of the greedy returns, and the mean length of the episodes."""

    def machine(self, row: Row) -> None:
        """What the machine does: steps per second, seconds of the processors, bytes of memory."""

    def recipe(self, text: str) -> None:
        """The recipe of the run, as YAML, before it begins."""

    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        """The plan of the program: a picture of its schedule (.png), and its text."""

    def film(self, film: Film, env_steps: int) -> None:
        """An episode of the trained policy."""

    def close(self) -> None:
        """The run has ended."""


class Recorders(Recorder):
    """Some recorders as one."""

    def __init__(self, recorders: Sequence[Recorder] = ()):
        self._recorders = [*recorders]

    def __bool__(self) -> bool:
        return bool(self._recorders)

    def add(self, recorder: Recorder) -> None:
        self._recorders.append(recorder)

    def log(self, row: Row) -> None:
        for recorder in self._recorders:
            recorder.log(row)

    def evaluation(self, row: Row) -> None:
        for recorder in self._recorders:
            recorder.evaluation(row)

    def machine(self, row: Row) -> None:
        for recorder in self._recorders:
            recorder.machine(row)

    def recipe(self, text: str) -> None:
        for recorder in self._recorders:
            recorder.recipe(text)

    def plan(self, picture: Path, text: str, env_steps: int) -> None:
        for recorder in self._recorders:
            recorder.plan(picture, text, env_steps)

    def film(self, film: Film, env_steps: int) -> None:
        for recorder in self._recorders:
            recorder.film(film, env_steps)

    def close(self) -> None:
        for recorder in self._recorders:
            recorder.close()


class Machine:
    """Measures what the machine does for a run: a row every ten seconds at most, and one at the end."""

    def __init__(self, env_steps: int = 0):
        self._told_at = -np.inf
        self._last = (env_steps, time.monotonic())

    def row(self, iteration: int, env_steps: int, is_last: bool) -> Row | None:
        """The row after an iteration, or None if it is not time for one."""
        now = time.monotonic()
        if not is_last and now - self._told_at < EVERY:
            return None
        (steps, then), self._last, self._told_at = self._last, (env_steps, now), now
        speed = (env_steps - steps) / max(now - then, 1e-9)
        return {"iteration": iteration, "env_steps": env_steps, "steps_per_second": speed, **_processors(), **_memory()}


def _processors() -> Row:
    times = os.times()
    return {"cpu_seconds": times.user + times.system + times.children_user + times.children_system}


def _memory() -> Row:
    """The bytes of the process, and, where JAX knows them, those of the device."""
    import jax

    numbers: dict[str, float] = {}
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        numbers["memory_bytes"] = pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):  # not Linux: the most so far
        if sys.platform != "win32":
            import resource

            unit = 1 if sys.platform == "darwin" else 1024
            numbers["memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    device = jax.local_devices()[0].memory_stats() or {}
    for name, key in (("device_memory_bytes", "bytes_in_use"), ("device_memory_peak_bytes", "peak_bytes_in_use")):
        if key in device:
            numbers[name] = device[key]
    return numbers

"""A run on the profiler's timeline: what worked at each moment, as operations of XLA and as marks of the host.

Marks are annotations around parts of a run. The time of a moment at which several operations work is divided among them.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import jax
import numpy as np

from tempo_core.errors import ConfigError

RUN, LAUNCH, CALL = "tempo run", "tempo launch ", "tempo call "
OTHER_WORK = "other work of the device"

Operation = tuple[str, str]  # the name of a device program, and of an operation in it
Event = tuple[int, int, Union[str, Operation]]  # its first nanosecond, the one after its last, and a mark or an operation


@dataclass
class Timeline:
    """Nanoseconds of one run: of operations, of the host's `marks`, and of the rest, in which neither worked (`idle`).

    Their sum is `total`, which is the time from the start of the run to its end.
    """

    total: int = 0
    operations: defaultdict[Operation, float] = field(default_factory=lambda: defaultdict(float))
    marks: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    idle: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)  # of marks


@contextmanager
def tracing() -> Iterator[Timeline]:
    """Run what is inside under JAX's profiler. The timeline is filled in at the end."""
    timeline = Timeline()
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0  # else each call of a Python function is an event
    with tempfile.TemporaryDirectory(prefix="tempo-profile-") as directory:
        try:
            jax.profiler.start_trace(directory, profiler_options=options)
        except RuntimeError as error:
            raise ConfigError(
                f"JAX's profiler does not start: {error}", hint="end the other profile first: jax.profiler.stop_trace()"
            ) from error
        began = time.perf_counter_ns()
        try:
            with jax.profiler.TraceAnnotation(RUN):
                yield timeline
        finally:
            elapsed = time.perf_counter_ns() - began
            jax.profiler.stop_trace()
        files = sorted(Path(directory).rglob("*.xplane.pb"))
        # Python 3.12 warns at the first use of some of JAX's types; as an error, that ends the process.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            planes = [plane for file in files for plane in jax.profiler.ProfileData.from_file(str(file)).planes]
            _fill(timeline, planes)
    if not timeline.total:  # a profiler that writes no marks: nothing is known but the whole
        timeline.total, timeline.idle = elapsed, float(elapsed)


def _fill(timeline: Timeline, planes: Iterable[Any]) -> None:
    """Read the profiler's planes: one for the host, one for each accelerator, each with a line for every thread or stream."""
    lines: list[list[Event]] = []
    for plane in planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            if not on_device or line.name.startswith("Stream"):  # the others are summaries of the streams
                keys = ((_key(event, on_device), int(event.start_ns), int(event.duration_ns)) for event in line.events)
                lines.append([(start, start + length, key) for key, start, length in keys if key])
    marks = {kind: [e for line in lines for e in line if str(e[2]).startswith(kind)] for kind in (RUN, CALL, LAUNCH)}
    begin, end, _ = marks[RUN][0] if marks[RUN] else (0, 0, RUN)
    timeline.total = end - begin
    timeline.counts.update(str(name) for kind in (CALL, LAUNCH) for _, _, name in marks[kind])
    work = [[event for event in line if isinstance(event[2], tuple)] for line in lines]
    timeline.idle = _divide(timeline, [*filter(None, work), marks[CALL], marks[LAUNCH]], begin, end)


def _key(event: Any, on_device: bool) -> str | Operation | None:
    """The mark or the operation of an event; None for another one."""
    name = str(event.name)
    if name.startswith(("tempo ", "end: ")):
        return name if name.startswith("tempo ") else None
    stats = dict(event.stats)
    operation = (str(stats.get("hlo_module", "")), str(stats["hlo_op"])) if "hlo_op" in stats else ("", name)
    return operation if on_device or "hlo_op" in stats else None


def _divide(timeline: Timeline, lines: Sequence[Sequence[Event]], begin: int, end: int) -> float:
    """Give each moment of the run, in equal parts, to the innermost event of each line. Returns the rest.

    The last line has the launches: they have the time that they prepare while nothing works.
    """
    cut = ((max(start, begin), min(stop, end), line, key) for line, events in enumerate(lines) for start, stop, key in events)
    events = sorted((event for event in cut if event[0] < event[1]), key=lambda event: (event[0], -event[1]))
    moments = np.unique([begin, end, *(event[0] for event in events), *(event[1] for event in events)])
    # By line, and by interval between two moments: its innermost event.
    inner = np.full((len(lines), len(moments) - 1), -1, np.int32)
    for number, (start, stop, line, _) in enumerate(events):  # the outermost first
        inner[line, np.searchsorted(moments, start) : np.searchsorted(moments, stop)] = number
    inner[-1, (inner[:-1] >= 0).any(axis=0)] = -1
    works = inner >= 0
    lengths, workers = np.diff(moments), works.sum(axis=0)
    shares = np.broadcast_to(lengths / np.maximum(workers, 1), inner.shape)
    for (_, _, _, key), share in zip(events, np.bincount(inner[works], shares[works], len(events)).tolist(), strict=True):
        if isinstance(key, tuple):
            timeline.operations[key] += share
        else:
            timeline.marks[key] += share
    return float(lengths[workers == 0].sum())

"""A run on the profiler's timeline: what worked at each moment, as operations of XLA and as marks of the host.

Marks are annotations around parts of a run. The time of a moment at which several operations work is divided among them.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import jax

from tempo_core.errors import ConfigError

RUN, LAUNCH, CALL = "tempo run", "tempo launch ", "tempo call "
OTHER_WORK = "other work of the device"
R = TypeVar("R")

Operation = tuple[str, str]  # the name of a device program, and of an operation in it
Span = tuple[int, int]  # the first nanosecond, and the one after the last


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
    times: Counter[Operation] = field(default_factory=Counter)  # of operations


def marked(function: Callable[..., R], mark: str) -> Callable[..., R]:
    """The same function, with a mark around each call."""

    def call(*arguments: Any, **named: Any) -> R:
        with jax.profiler.TraceAnnotation(mark):
            return function(*arguments, **named)

    return call


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
    marks: list[tuple[int, int, str]] = []
    work: list[list[tuple[int, int, Operation]]] = []
    for plane in planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            if on_device and not line.name.startswith("Stream"):
                continue  # summaries of the streams
            events: list[tuple[int, int, Operation]] = []
            for event in line.events:
                name, start = event.name, int(event.start_ns)
                end = start + int(event.duration_ns)
                if name.startswith("tempo "):
                    marks.append((start, end, name))
                    continue
                if name.startswith("end: "):
                    continue
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    events.append((start, end, (str(stats.get("hlo_module", "")), str(stats["hlo_op"]))))
                elif on_device:
                    events.append((start, end, ("", name)))
            work.append(events)
    begin, end = next(((start, end) for start, end, name in marks if name == RUN), (0, 0))
    timeline.total = end - begin
    pieces: list[tuple[int, int, object]] = []
    for events in work:
        inside = [(max(a, begin), min(b, end), operation) for a, b, operation in events if b > begin and a < end]
        timeline.times.update(operation for _, _, operation in inside)
        pieces += _innermost(inside)
    calls = [(a, b, name) for a, b, name in marks if name.startswith(CALL)]
    launches = [(a, b, name) for a, b, name in marks if name.startswith(LAUNCH)]
    timeline.counts.update(name for _, _, name in (*calls, *launches))
    pieces += calls
    timeline.idle = _divide(timeline, pieces, launches, (begin, end))


def _innermost(events: Sequence[tuple[int, int, Operation]]) -> list[tuple[int, int, object]]:
    """The events of one thread without the time of the events inside them."""
    pieces: list[tuple[int, int, object]] = []
    open_events: list[tuple[int, Operation]] = []  # (end, operation)
    at = 0

    def until(end: int) -> None:
        nonlocal at
        if end > at and open_events:
            pieces.append((at, end, open_events[-1][1]))
        at = max(at, end)

    for start, end, operation in sorted(events, key=lambda event: (event[0], -event[1])):
        while open_events and open_events[-1][0] <= start:
            until(open_events[-1][0])
            open_events.pop()
        until(start)
        at = max(at, start)
        open_events.append((end, operation))
    while open_events:
        until(open_events[-1][0])
        open_events.pop()
    return pieces


def _divide(
    timeline: Timeline, pieces: Sequence[tuple[int, int, object]], launches: Sequence[tuple[int, int, str]], run: Span
) -> float:
    """Give each moment of the run to what works then, in equal parts; else to the launch that is being prepared. Returns the rest."""
    changes: list[tuple[int, int, int, object]] = []
    for priority, group in ((0, pieces), (1, launches)):
        for start, end, key in group:
            changes += [(start, 1, priority, key), (end, -1, priority, key)]
    changes.sort(key=lambda change: (change[0], change[1]))
    active: tuple[Counter[object], Counter[object]] = (Counter(), Counter())
    at, idle = run[0], 0.0
    for moment, change, priority, key in [*changes, (run[1], 0, 0, None)]:
        now = min(max(moment, run[0]), run[1])
        if now > at:
            working = active[0] or active[1]
            for each, count in working.items():
                share = (now - at) * count / working.total()
                if isinstance(each, tuple):
                    timeline.operations[each] += share
                else:
                    timeline.marks[str(each)] += share
            idle += 0.0 if working else now - at
            at = now
        if key is not None:
            active[priority][key] += change
            if not active[priority][key]:
                del active[priority][key]
    return idle

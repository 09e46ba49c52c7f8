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
from typing import Any, TypeVar, Union

import jax

from tempo_core.errors import ConfigError

RUN, LAUNCH, CALL = "tempo run", "tempo launch ", "tempo call "
OTHER_WORK = "other work of the device"
R = TypeVar("R")

Operation = tuple[str, str]  # the name of a device program, and of an operation in it
Span = tuple[int, int]  # the first nanosecond, and the one after the last
Event = tuple[int, int, Union[str, Operation]]  # its span, and a mark or an operation


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
    marks: list[Event] = []
    work: list[list[Event]] = []  # the operations of each line
    for plane in planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            if on_device and not line.name.startswith("Stream"):
                continue  # summaries of the streams
            events: list[Event] = []
            for event in line.events:
                name, start = event.name, int(event.start_ns)
                end, stats = (
                    start + int(event.duration_ns),
                    {} if event.name.startswith(("tempo ", "end: ")) else dict(event.stats),
                )
                if name.startswith("tempo "):
                    marks.append((start, end, name))
                elif "hlo_op" in stats:
                    events.append((start, end, (str(stats.get("hlo_module", "")), str(stats["hlo_op"]))))
                elif on_device and not name.startswith("end: "):
                    events.append((start, end, ("", name)))
            work.append(events)
    begin, end = next(((start, end) for start, end, name in marks if name == RUN), (0, 0))
    timeline.total = end - begin
    calls, launches = ([each for each in marks if str(each[2]).startswith(kind)] for kind in (CALL, LAUNCH))
    timeline.counts.update(str(name) for _, _, name in (*calls, *launches))
    for events in work:
        timeline.times.update(operation for a, b, operation in events if b > begin and a < end and isinstance(operation, tuple))
    timeline.idle = _divide(timeline, [*work, calls, launches], (begin, end))


def _divide(timeline: Timeline, lines: Sequence[Sequence[Event]], run: Span) -> float:
    """Give each moment of the run, in equal parts, to the innermost event of each line. Returns the rest.

    The last line has the launches: they have the time that they prepare while nothing works.
    """
    events = [(start, end, line, key) for line, each in enumerate(lines) for start, end, key in each if start < end]
    changes = [(end, 0, line, key) for _, end, line, key in events]
    changes += [(start, start - end, line, key) for start, end, line, key in events]  # the outermost of several begins first
    changes.sort(key=lambda change: (change[0], change[1] < 0, change[1]))
    active: list[list[str | Operation]] = [[] for _ in lines]
    at, idle = run[0], 0.0
    for moment, begins, line, key in [*changes, (run[1], 0, 0, "")]:
        now = min(max(moment, run[0]), run[1])
        if now > at:
            working = [inner[-1] for inner in active[:-1] if inner] or active[-1][-1:]
            for each in working:
                share = (now - at) / len(working)
                if isinstance(each, tuple):
                    timeline.operations[each] += share
                else:
                    timeline.marks[each] += share
            idle += 0.0 if working else now - at
            at = now
        if begins:
            active[line].append(key)
        elif key in active[line]:
            active[line].remove(key)
    return idle

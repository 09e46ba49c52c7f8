"""Where a run spends its time: by the user's lines, by tensor and by loop, as tables, JSON and a flame picture in a trace.

Device programs are measured by JAX's profiler (`report/programs/timeline.py`): their operations have names that lead to statements
(`backends/scopes.py`, `report/programs/hlo.py`). Functions on the host are marked on the same timeline. What belongs to no statement has rows of
its own, so that the rows of each table add up to the run. Interpreted programs are measured statement by statement.
"""

from __future__ import annotations

import functools
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import jax
import numpy as np

from tempo_core.backends.base import Backend
from tempo_core.backends.scopes import Scope
from tempo_core.errors import ArgumentError
from tempo_core.ir.graph import Graph, Node
from tempo_core.ir.names.naming import label, names
from tempo_core.ir.names.source_lines import targets
from tempo_core.ir.names.user_lines import Sources, span
from tempo_core.ir.ops import Dataflow, End, Sink, Udf
from tempo_core.ir.udf import Fed
from tempo_core.report.pages.html import Shown
from tempo_core.report.pages.page import Page, Table, table_of
from tempo_core.report.pages.trace import flame, write_trace
from tempo_core.runtime.cost.cost import Cost
from tempo_core.runtime.feeds import Feeds
from tempo_core.runtime.interpreted.interpreter import Interpreter
from tempo_core.runtime.numerics import Watch
from tempo_core.schedule import Scheduled
from tempo_core.schedule.tree import loop_label, with_loops

KINDS = ("tensor", "line", "loop")
OWN, LAUNCHING, PYTHON = "loop control and copies", "launching", "Python and waiting"
OUTSIDE = "outside of loops"
SHOWN = 20  # rows of a table; the others share the last row

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Array = np.ndarray[Any, np.dtype[Any]]
    R = TypeVar("R", default=Array | dict[str, Array] | list[Array], covariant=True)
else:
    from typing import TypeVar

    R = TypeVar("R", covariant=True)  # the results of a run


class Frame(NamedTuple):
    """A part of the program around a measured one: a "loop" or a "device program"."""

    kind: str
    text: str


@dataclass(frozen=True)
class Entry:
    """Seconds of a run that belong to one place of the program.

    `path` are the loops and device programs around it, the outermost first. `name` is a tensor, or another purpose. `statement` is the
    statement's name in `program.cost()`, or "". `source` is what was started `launches` times: a device program, or a function on the host.
    `kernel` is "", or the kernel that did the work of several places: its time was divided among them by an estimate.
    """

    path: tuple[Frame, ...]
    name: str
    where: str
    statement: str
    seconds: float
    source: str = ""
    launches: int = 0
    kernel: str = ""

    @property
    def divisible(self) -> list[str]:
        """The statement and the kernel, whose figures other entries may share."""
        return list(filter(None, (self.statement, self.kernel)))

    @property
    def loop(self) -> str:
        loops = " > ".join(frame.text for frame in self.path if frame.kind == "loop")
        return loops or (OUTSIDE if self.path or self.statement else self.name)


@dataclass(frozen=True)
class ProfileRow:
    """One row of a profile's table.

    `name` is a tensor, a line or a loop, or the purpose of time that belongs to no statement. `detail` is the tensor's line, or the
    tensors of a line. `operations` and `bytes_moved` are those that `program.cost()` counts. `launches` are those of the device programs
    and functions that contain the row's work. If it `is_divided`, some of its figures are estimated shares of a kernel or statement.
    """

    name: str
    detail: str
    seconds: float
    operations: int
    bytes_moved: int
    launches: int
    is_divided: bool


@dataclass(frozen=True)
class Profile(Shown, Generic[R]):
    """A profiled run: `print(profile)` shows its tables, `profile.draw("profile.json")` draws it.

    `results` are those of the run. `seconds` is its time under the profiler, `plain_seconds` the time of a run before it without the
    profiler (None if the program may not run twice), `compile_seconds` the time of compiling, which is in neither.
    """

    results: R = field(repr=False)
    seconds: float
    plain_seconds: float | None
    compile_seconds: float
    entries: tuple[Entry, ...] = field(repr=False)
    counts: Mapping[str, tuple[int, int]] = field(repr=False)  # by statement: operations, and bytes moved

    def rows(self, by: str = "tensor") -> tuple[ProfileRow, ...]:
        """The rows of the table by "tensor", by "line" or by "loop", the longest first. Their seconds add up to those of the run.

        Raises ArgumentError for another word.
        """
        if by not in KINDS:
            raise ArgumentError(f"a profile has no rows by {by!r}", hint=f"profile.rows({KINDS[0]!r}); one of {', '.join(KINDS)}")
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries:
            key = {"tensor": entry.name, "line": entry.where or entry.name, "loop": entry.loop}[by]
            groups.setdefault(key, []).append(entry)
        rows = [self._row(by, key, group) for key, group in groups.items()]
        return tuple(sorted(rows, key=lambda row: (-row.seconds, row.name)))

    def _row(self, by: str, key: str, group: Sequence[Entry]) -> ProfileRow:
        launches = {entry.source: entry.launches for entry in group}
        operations, moved = np.sum([self._counted(entry) for entry in group], axis=0)
        lines = dict.fromkeys(entry.where for entry in group if entry.where)
        tensors = dict.fromkeys(entry.name for entry in group if entry.statement)
        detail = {"tensor": ", ".join(lines), "line": label(tensors), "loop": ""}[by]
        seconds, parts = sum(entry.seconds for entry in group), Counter(part for entry in group for part in entry.divisible)
        is_divided = any(number < len(self._sharing[part]) for part, number in parts.items())
        detail = detail if detail != key else ""
        return ProfileRow(key, detail, seconds, round(operations), round(moved), sum(launches.values()), is_divided)

    def _counted(self, entry: Entry) -> tuple[float, float]:
        """The operations and bytes of an entry: its statement's, in proportion to time."""
        sharing, (operations, moved) = (
            self._sharing.get(entry.statement, [entry.seconds]),
            self.counts.get(entry.statement, (0, 0)),
        )
        share = entry.seconds / sum(sharing) if sum(sharing) else 1 / len(sharing)
        return operations * share, moved * share

    @functools.cached_property
    def _sharing(self) -> Mapping[str, list[float]]:
        """By statement, and by divided kernel: the seconds of its entries."""
        seconds: dict[str, list[float]] = {}
        for entry in self.entries:
            for part in entry.divisible:
                seconds.setdefault(part, []).append(entry.seconds)
        return seconds

    def __str__(self) -> str:
        plain = "" if self.plain_seconds is None else f", {_time(self.plain_seconds)} without the profiler"
        lines = [f"{_time(self.seconds)} under the profiler{plain}; compiling before it took {_time(self.compile_seconds)}"]
        for table in self._tables():
            lines += ["", *table.lines()]
        if any(row.is_divided for by in KINDS for row in self.rows(by)):
            lines += ["", "~ estimated: a kernel or a statement does the work of several rows, and is divided among them"]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Everything as JSON text: the times in seconds, `rows` by tensor, line and loop, and the `entries` with their paths."""
        entries = [{**asdict(entry), "path": [frame.text for frame in entry.path]} for entry in self.entries]
        times = {"seconds": self.seconds, "plain_seconds": self.plain_seconds, "compile_seconds": self.compile_seconds}
        rows = {by: [asdict(row) for row in self.rows(by)] for by in KINDS}
        return json.dumps({**times, "rows": rows, "entries": entries})

    def draw(self, path: str | Path) -> None:
        """Write a flame picture as a trace, for https://ui.perfetto.dev: the length of a bar is time; loops and device programs stand
        above what they contain, the longest of them first.

        Raises ConfigError unless the file ends in .json, and if it cannot be written.
        """
        write_trace(path, lambda: flame(map(self._stack, self.entries)), "the profile", 'profile.draw("profile.json")')

    def _stack(self, entry: Entry) -> tuple[list[str], float]:
        """An entry below its loops and device programs."""
        inner = f"{entry.name}  {entry.where}" if entry.where else entry.name
        return ["program", *(frame.text for frame in entry.path), inner], entry.seconds

    def _page(self) -> Page:
        times = (
            ("under the profiler", self.seconds),
            ("without the profiler", self.plain_seconds),
            ("compiling before it", self.compile_seconds),
        )
        facts = tuple((word, _time(seconds)) for word, seconds in times if seconds is not None)
        return Page("profile", facts, self._tables())

    def _tables(self) -> tuple[Table, ...]:
        rows = {by: [(_cells(row, self.seconds), row.seconds) for row in _few(self.rows(by))] for by in KINDS}
        return tuple(table_of(f"by {by}", _columns(by), rows[by]) for by in KINDS)


def _time(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.2f} ms"


def _few(rows: Sequence[ProfileRow]) -> list[ProfileRow]:
    """The same rows, with the small ones at the end joined into one."""
    if len(rows) <= SHOWN + 1:
        return list(rows)
    rest = rows[SHOWN:]
    seconds, is_divided = sum(row.seconds for row in rest), any(row.is_divided for row in rest)
    counts = sum(row.operations for row in rest), sum(row.bytes_moved for row in rest)
    return [*rows[:SHOWN], ProfileRow(f"{len(rest)} smaller ones", "", seconds, *counts, 0, is_divided)]


def _columns(by: str) -> tuple[str, ...]:
    return by, {"tensor": "line", "line": "tensors", "loop": ""}[by], "time", "share", "operations", "bytes moved", "launches"


def _cells(row: ProfileRow, total: float) -> tuple[str, ...]:
    mark = "~" if row.is_divided else ""
    counts = tuple(f"{mark}{number:,}" if number else "" for number in (row.operations, row.bytes_moved))
    share = f"{100 * row.seconds / total:.1f}%" if total else ""
    return row.name, row.detail, f"{mark}{_time(row.seconds)}", share, *counts, f"{row.launches:,}" if row.launches else ""


# -- what statements are called ---------------------------------------------------------------------------------------


class Places:
    """The names and lines of a program's statements, and of the operations in its islands."""

    def __init__(self, graph: Graph, sources: Sources):
        self.graph, self.sources, self.labels = graph, sources, names(graph)

    def statement(self, node_id: int, branch: int | None) -> str:
        """The name of a statement in `program.cost()`."""
        return self.labels[node_id] + ("" if branch is None else f"|{branch}")

    def named(self, entry: Entry, scope: Scope) -> Entry:
        """An entry with the tensor, the line and the statement of a place; as it is for time that belongs to no statement."""
        if scope.statement is None:
            return entry
        name, where = self._place(*scope.statement, scope.instruction)
        return replace(entry, name=name, where=where, statement=self.statement(*scope.statement))

    def _place(self, node_id: int, branch: int | None, instruction: int | None) -> tuple[str, str]:
        """The tensor of a statement, or of an operation in an island, and its line."""
        node = self.graph[node_id]
        if isinstance(node.op, Dataflow) and instruction is not None and instruction < len(node.op.body.lines):
            name, where = node.op.body.lines[instruction]
            tensor = name or ", ".join(targets(where))
            line = span([self.sources.names.get(name, where)])
            if line:
                return tensor or self.labels[node_id], line
        results = [name for name in node.op.results if name] if isinstance(node.op, Udf) else []
        return label(results) or self.labels[node_id], span(self.sources.of(node, branch))


def counts_of(cost: Cost) -> dict[str, tuple[int, int]]:
    """The operations and the bytes moved, by statement."""
    return {each.name: (each.numbers["operations"], each.numbers["bytes_moved"]) for each in cost.by_statement}


def complete(entries: Iterable[Entry], places: Places, counts: Mapping[str, tuple[int, int]]) -> tuple[Entry, ...]:
    """The entries, joined where only their seconds differ, and entries without time for statements that XLA has left nothing of."""
    seconds: defaultdict[Entry, float] = defaultdict(float)
    for entry in entries:
        seconds[replace(entry, seconds=0.0)] += entry.seconds
    without_time = counts.keys() - {entry.statement for entry in seconds}
    for node in places.graph:
        for branch in (None, *range(len(node.inputs))):
            statement = places.statement(node.id, branch)
            if statement in without_time:
                seconds[places.named(Entry((), "", "", "", 0.0), Scope((), (node.id, branch)))] = 0.0
    return tuple(replace(entry, seconds=of_entry) for entry, of_entry in seconds.items())


def may_repeat(graph: Graph, fed: Feeds) -> bool:
    """Whether a program may run twice with the same effect: no sink, no function with state, no input that is fed while it runs."""
    with_state = any(isinstance(n.op, Udf) and n.op.stateful and not isinstance(n.op.fn, Fed) for n in graph)
    with_sinks = any(isinstance(n.op, Sink) and not isinstance(n.op, End) for n in graph)
    return not (with_state or with_sinks or fed.streams)


def on_host(node: Node) -> bool:
    """Whether a node calls a function of the user's on the host."""
    op = node.op
    is_sink = isinstance(op, Sink) and not isinstance(op, End)
    return is_sink or (isinstance(op, Udf) and op.kind == "host" and not isinstance(op.fn, Fed))


# -- interpreted programs ---------------------------------------------------------------------------------------------


def interpreted(
    scheduled: Scheduled, backend: Backend, fed: Feeds, seed: int, watch: Watch | None, places: Places
) -> tuple[dict[int, Any], float, list[Entry]]:
    """The results of an interpreted run, its seconds, and its entries: one for each statement of the program's tree."""
    clock = time.perf_counter
    interpreter = Interpreter(scheduled, backend, seed, watch)
    spent: defaultdict[int, list[float]] = defaultdict(list)  # by place in the program: the seconds of each execution
    state = interpreter.state(fed)
    began = last = clock()
    for executed in interpreter.steps(state):
        jax.block_until_ready(executed.values)
        now = clock()
        spent[executed.place].append(now - last)
        last = now
    seconds = clock() - began
    entries = [Entry((), PYTHON, "", "", max(seconds - sum(map(sum, spent.values())), 0.0))]
    for number, (execute, loops) in enumerate(with_loops(scheduled.root)):
        path, times = tuple(Frame("loop", loop_label(loop)) for loop in loops), spent[number]
        entry = Entry(path, "", "", "", sum(times), f"statement {number}", len(times))
        entries.append(places.named(entry, Scope((), (execute.node, execute.branch))))
    return state.results, seconds, entries


def timed(run: Callable[[], object]) -> float:
    """The seconds that a function takes."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began

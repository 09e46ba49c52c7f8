"""The plan of a program, before it runs: its schedule, its XLA programs, and the memory of each tensor with the peaks."""

from __future__ import annotations

import functools
import json
import math
import os
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import jax

from tempo_core.errors import ArgumentError, OutOfMemoryError, OutOfMemoryPlanError, quoted
from tempo_core.ir.graph import Graph, Key
from tempo_core.ir.names.naming import head, value_names
from tempo_core.ir.names.source_lines import split_line
from tempo_core.ir.names.user_lines import Sources
from tempo_core.ir.ops import Merge
from tempo_core.report.pages.html import Shown
from tempo_core.report.pages.page import Group, Page, Table, Text, place, with_bars
from tempo_core.report.pages.trace import write_trace
from tempo_core.report.programs import memory_table
from tempo_core.report.programs.memory_table import StoredTensor
from tempo_core.runtime.cost.usage import DEVICE, ON_HOST, PART, Moment, PlannedTensor, Usage, usage_of
from tempo_core.runtime.staged.host import Chunks, Loops, Segment, loop_names, placed
from tempo_core.runtime.staged.stage import Staged
from tempo_core.schedule import Scheduled
from tempo_core.schedule.outline import outline
from tempo_core.schedule.tidy import extent

_SMALLER = "use smaller bounds or shapes; or a window, x[t - 3:t + 1], instead of all steps, x[0:T]"


@dataclass(frozen=True)
class Plan(Shown):
    """`device_programs`: for each XLA program, the loops in which the host starts it ("" if it runs once). `compiles` is their number.

    `tensors` are the stores. The memory of the whole run (`usage`, and what follows from it) is counted when it is asked for: the device
    programs are compiled then, as XLA decides about their temporaries. The run that follows uses them.
    """

    schedule: str
    tensors: tuple[StoredTensor, ...]
    device_programs: tuple[str, ...]
    outline: str = ""  # the schedule in short form
    written_out: str = ""  # the loops that are written out, a line each, with what that costs
    devices: str = ""  # the step that is spread over several devices
    steps: tuple[str, ...] = ()  # of the program, by name
    moves: tuple[str, ...] = ()  # for each device program, what it loads from the host, and what it evicts to it
    launches: int = 0  # of device programs in a run, as far as the loops around them have numbers; a long loop counts as one
    count: Callable[[bool], Usage] = field(default=lambda compiled: Usage((), ()), repr=False, compare=False)

    @property
    def compiles(self) -> int:
        return len(self.device_programs)

    @property
    def bytes(self) -> int:
        """The bytes of the stores that live on the device between XLA programs. XLA itself manages temporaries inside a program."""
        return sum(t.bytes for t in self.tensors if t.persistent)

    @functools.cached_property
    def usage(self) -> Usage:
        """Every tensor of a run with its bytes, place and lifetime, and the moments of the program with their sums."""
        return self.count(True)

    @property
    def peak_device_bytes(self) -> int:
        """The most bytes on the device at a time: stores, inputs, results, arguments, and the temporaries of the device program that runs.

        The temporaries are XLA's own figure.
        """
        return self.peak_device.device_bytes

    @property
    def peak_host_bytes(self) -> int:
        """The most bytes on the host at a time: fed arrays, results, host stores, and the arguments of functions on the host."""
        return self.peak_host.host_bytes

    @property
    def peak_device(self) -> Moment:
        """Where `peak_device_bytes` are needed: the device program, its loops, the statement and the user's line."""
        return self.usage.on_device

    @property
    def peak_host(self) -> Moment:
        """Where `peak_host_bytes` are needed."""
        return self.usage.on_host

    def coarse(self) -> Plan:
        """The same plan without asking XLA: nothing is compiled, and the temporaries of device programs are a coarse estimate."""
        return replace(self, count=lambda compiled: self.count(False))

    def refused(self, limit: int, usage: Usage, form: str, forms: int) -> OutOfMemoryPlanError:
        """The error for a program of which no form fits in `limit` bytes. This is the usage of the smallest `form` of so many."""
        on_device, on_host = usage.peaks
        place, peak, needed = on_device if on_device[2] else on_host
        among = f", the smallest of {forms} forms ({form})," if forms > 1 else ""
        return OutOfMemoryPlanError(
            f"the program needs {needed:,} bytes on the {place}{among} in {peak}, but memory_limit allows {limit:,}; the largest tensors at that point:"
            f"{_largest(usage.alive(peak, place))}",
            hint=f"allow that much, memory_limit={needed}; or {_SMALLER}",
        )

    def out_of_memory(self, said: str) -> OutOfMemoryError:
        """The error for a run that had too little memory. `said` is the message of the device or of NumPy. Nothing is compiled for it."""
        said, usage = next(iter(said.strip().splitlines()), "out of memory"), self.count(False)
        place, peak, needed = max(usage.peaks, key=lambda peak: peak[2])
        there = _memory_of(place)
        fits = f", which has {there:,}: {-(-needed // there):,} times smaller, it would fit" if there and needed > there else ""
        return OutOfMemoryError(
            f"the run needs more memory than there is ({said}): {needed:,} bytes on the {place}{fits}. In {peak}, the largest tensors are:"
            f"{_largest(usage.alive(peak, place))}",
            hint=f"{_SMALLER}. To let Tempo look for a smaller form of the program: Config(memory_limit=...)",
        )

    def programs_per(self, step: str) -> int:
        """The number of device programs that one iteration of the host's loop over `step` starts, without those of inner loops.

        Of a loop inside of others, `step` names them all, from the outermost: `"i, t"`. Raises ArgumentError for a step that the program lacks.
        """
        loops = str(step).split(", ") if step != "" else []
        here = {name for place in self.device_programs if place for name in place.split(", ")}
        for name in loops:
            if name not in here and name not in self.steps:
                raise ArgumentError(f"the program has no step `{name}`", hint=f"its steps are {', '.join(self.steps) or 'none'}")
        return self.device_programs.count(", ".join(loops))

    def memory(self, full: bool = False) -> str:
        """The stores as a table, the largest first. Values that live in one iteration of a loop are listed below the table.

        Tensors of one module, optimizer or object share a row, and small stores share the last row. With `full`, each has a row.
        """
        stored = [t for t in self.tensors if t.persistent or math.prod(t.slots) > 1]
        passing = [t for t in self.tensors if t not in stored]
        return memory_table.memory_text(stored, passing, self.bytes, full)

    def table(self, full: bool = False) -> str:
        """Both peaks with their places, and the tensors that are in memory then, the largest first.

        With `full`, all tensors of the run, each with the moments from which and to which it lives.
        """
        return memory_table.usage_text(self.usage, full)

    def to_json(self) -> dict[str, object]:
        """The peaks, the moments and all tensors, as objects that `json` writes. Sizes are in bytes; moments are numbered from 0."""
        moments = self.usage.moments
        return {
            "peak_device_bytes": self.peak_device_bytes,
            "peak_device_moment": moments.index(self.peak_device),
            "peak_host_bytes": self.peak_host_bytes,
            "peak_host_moment": moments.index(self.peak_host),
            "moments": [asdict(moment) for moment in moments],
            "tensors": [asdict(tensor) for tensor in self.usage.tensors],
        }

    def json(self) -> str:
        """`to_json()` as text."""
        return json.dumps(self.to_json(), indent=1)

    def draw(self, path: str | Path) -> None:
        """Write a trace, for https://ui.perfetto.dev: the bytes on the device and on the host at each moment of the program, and each
        tensor from its first moment to its last.

        Raises ConfigError unless the file ends in .json, and if it cannot be written.
        """
        write_trace(path, lambda: memory_table.memory_trace(self.usage), "the memory", 'plan.draw("memory.json")')

    def _sections(self, full: bool = False) -> list[tuple[str, str]]:
        """Titles and texts. The device programs have a line each: `2: once each t`."""
        programs = [f"{number}: {f'once each {place}' if place else 'once'}" for number, place in enumerate(self.device_programs)]
        programs = [f"{line}; {moves}" if moves else line for line, moves in zip(programs, self.moves, strict=True)]
        if self.device_programs and any(t.persistent for t in self.tensors):
            programs = ["zeros for the stores: once", *programs]
        sections = [("schedule", self.schedule if full else self.outline), ("storage", self.memory(full))]
        sections += [(f"device programs: {len(programs)}", "\n".join(programs)), ("memory", memory_table.peaks_text(self.usage))]
        return sections + [
            (title, text) for title, text in (("devices", self.devices), ("written out", self.written_out)) if text
        ]

    def _page(self) -> Page:
        facts = [("stores", f"{self.bytes:,} bytes between device programs")]
        facts += [
            (peak, at) for peak, _, at in (line.partition(": ") for line in memory_table.peaks_text(self.usage).splitlines())
        ]
        texts = [Text(title, text) for title, text in self._sections() if text and title not in ("storage", "memory")]
        tables = (table for table in memory_table.at_peaks(self.usage) if table.rows)
        return Page("plan", tuple(facts), (self._by_line(), *tables, *texts, memory_table.over_time(self.usage)))

    def _by_line(self) -> Table:
        """The stores under the user's lines, in the order of the lines."""
        planned = sorted(self.usage.tensors, key=lambda tensor: (tensor.place == DEVICE, -tensor.first))
        lives = {tensor.name: _life(tensor, self.usage.moments) for tensor in planned}
        lines: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        for t in sorted(self.tensors, key=lambda stored: -stored.bytes):
            life = lives.get(t.name, "") if t.persistent else "inside a device program" if self.device_programs else ""
            lines.setdefault(t.line, []).append(((t.name, t.kind, t.type, t.slots_text, f"{t.bytes:,}", life), t.bytes))
        sums = {line: sum(size for _, size in rows) for line, rows in lines.items()}
        groups, most = [], max(sums.values(), default=0)
        for line in sorted(lines, key=lambda line: (not line, split_line(line))):
            where, code = place(line)
            title, share = code or where or "no line of the program", sums[line] / most if most else 0.0
            groups.append(Group(with_bars(lines[line], most), title, where, f"{sums[line]:,}", share))
        return Table("stores by line", ("tensor", "store", "type", "slots", "bytes", "in memory"), tuple(groups))

    def text(self, full: bool = False) -> str:
        """Schedule, stores and device programs. With `full`, each statement and each store has a line of its own."""
        return "\n".join(f"{title}\n{textwrap.indent(text.rstrip(), '  ')}\n" for title, text in self._sections(full))


def _times(loops: Loops) -> int:
    """How often a launch happens inside of these loops."""
    times = 1
    for loop in loops:
        trips = extent(loop.stop - loop.start, {})
        each = loop.step if not isinstance(loop, Chunks) else loop.step * loop.most if loop.most else None
        times *= 1 if trips is None or each is None else max(-(-trips[1] // each), 1)
    return times


def _moves(staged: Staged, segment: Segment, labels: Mapping[Key, str]) -> str:
    """`load x, h; evict h`: the values that come from the host before a launch, and that go there after it or a later one."""
    touched = staged.moves.get(segment.number, {})
    loaded = [labels[key] for key, moves in touched.items() if moves.needed]
    evicted = [labels[key] for key, moves in touched.items() if moves.written]
    parts = ("load", loaded), ("evict", evicted)
    return "; ".join(f"{verb} {', '.join(dict.fromkeys(names))}" for verb, names in parts if names)


def _life(tensor: PlannedTensor, moments: Sequence[Moment]) -> str:
    """When a tensor is in memory: `device program 1 to device program 3`."""
    first, last = moments[tensor.first].name, moments[tensor.last].name
    if (tensor.first, tensor.last) == (0, len(moments) - 1):
        return "the whole run"
    return first if first == last else f"{first} to {last}"


def _memory_of(place: str) -> int | None:
    """The bytes of a device's memory, or of the host's, free or not; None where it is not known."""
    statistics = jax.local_devices()[0].memory_stats() if place == DEVICE else None
    if statistics:
        return statistics.get("bytes_limit")
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on this system
        return None


def _largest(tensors: Sequence[PlannedTensor]) -> str:
    """The five largest of some tensors, one on each line, with the user's lines."""
    lines = []
    for tensor in tensors[:5]:
        slots = f" x {math.prod(tensor.slots)} slots" if tensor.slots else ""
        where = f"\n      at {quoted(tensor.line)}" if tensor.line else ""
        lines.append(f"\n    {tensor.name} ({tensor.kind}): {tensor.type}{slots} = {tensor.bytes:,} bytes{where}")
    return "".join(lines)


def plan_of(
    graph: Graph,
    scheduled: Scheduled,
    staged: Staged | None,
    sources: Sources,
    parameters: Collection[str],
    place: str,
) -> Plan:
    """The plan of a scheduled program. `sources` are the user's lines, `parameters` the names of modules' parameters.

    An interpreted program has its arrays in `place`, the "device" or the "host".
    """
    persistent = set(staged.store_keys) if staged is not None else set(scheduled.storage)
    labels = value_names(graph)
    tensors = []
    for (node_id, output), storage in scheduled.storage.items():
        node = graph[node_id]
        type = node.outputs[output]
        key, name = (node_id, output), labels[node_id, output]
        line = sources.of_value(node, output)
        each = type.size_in_bytes(scheduled.bounds) if type.is_static else 0
        noun = "parameters" if name in parameters else "tensors"
        group = f"{head(name)}{'|' if isinstance(node.op, Merge) else ''}"
        hosted = staged.hosted.get(key) if staged is not None else None
        stores = [(storage.kind, storage)] if hosted is None else [(ON_HOST, hosted.storage), (PART, hosted.on_device)]
        for kind, each_store in stores[hosted is not None and hosted.is_fed :]:
            slots, is_there = each_store.slots, key in persistent and kind != ON_HOST
            tensors.append(StoredTensor(name, str(type), kind, slots, each * each_store.size, is_there, group, noun, line))
    items = placed(staged.items) if staged is not None else ()
    places = tuple(loop_names(loops) for item, loops in items if isinstance(item, Segment))
    written_out = staged.unrolled.text(graph, staged.target) if staged is not None else ""
    spread = staged.spread if staged is not None else None

    def count(compiled: bool) -> Usage:
        if compiled and staged is not None:
            staged.compile_segments()
        return usage_of(graph, scheduled, staged, sources, place)

    return Plan(
        scheduled.text(),
        tuple(tensors),
        places,
        outline(scheduled.root, graph, sources),
        written_out,
        "" if spread is None else spread.text(scheduled.bounds[spread.step.bound_symbol]),
        tuple(step.name for step in graph.order),
        tuple(_moves(staged, segment, labels) for segment in staged.segments) if staged is not None else (),
        sum(_times(loops) for item, loops in placed(staged.items) if isinstance(item, Segment)) if staged is not None else 0,
        count,
    )

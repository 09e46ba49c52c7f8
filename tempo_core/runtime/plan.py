"""The plan of a program, before it runs: its schedule, where each tensor lives and in how many bytes, its XLA programs."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.errors import OutOfMemoryError, OutOfMemoryPlanError
from tempo_core.ir.graph import Graph
from tempo_core.ir.naming import value_names
from tempo_core.runtime.stage import HostIf, HostItem, HostLoop, Segment, Staged
from tempo_core.schedule import Scheduled

_SMALLER = "smaller bounds or shapes, a window instead of a whole step, Config(tile={'t': 64}), Config(disable=('vectorize(t)',))"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor that has a store: one row of the plan."""

    name: str
    type: str
    kind: str  # "register", "window" or "block"
    slots: tuple[int, ...]
    bytes: int
    persistent: bool  # lives between device programs (else a local of one)


@dataclass(frozen=True)
class Plan:
    """`device_programs`: for each XLA program, in what loops the host starts it ("" for once). `compiles` is their number."""

    schedule: str
    tensors: tuple[StoredTensor, ...]
    device_programs: tuple[str, ...]

    @property
    def compiles(self) -> int:
        return len(self.device_programs)

    @property
    def bytes(self) -> int:
        """What lives on the device between programs; temporaries inside one are XLA's own."""
        return sum(t.bytes for t in self.tensors if t.persistent)

    def check_memory(self, limit: int) -> None:
        """Raise OutOfMemoryPlanError where the stores, of whatever life, do not fit in `limit` bytes."""
        needed = sum(t.bytes for t in self._stored())
        if needed > limit:
            raise OutOfMemoryPlanError(
                f"the plan needs {needed:,} bytes for its stores and memory_limit allows {limit:,}; the largest:{_listed(self._stored())}",
                hint=f"{_SMALLER}, or a higher memory_limit",
            )

    def out_of_memory(self, said: str) -> OutOfMemoryError:
        """The error for a run that found too little memory; `said` is what the device, or NumPy, said about it."""
        said = next(iter(said.strip().splitlines()), "out of memory")
        return OutOfMemoryError(
            f"the run needs more memory than there is ({said}); its largest tensors:{_listed(self.tensors)}",
            hint=f"{_SMALLER}; Config(memory_limit=...) refuses such a program when it is compiled",
        )

    def _stored(self) -> list[StoredTensor]:
        return [t for t in self.tensors if t.persistent or t.kind != "register"]

    def programs_per(self, step: str) -> int:
        """How many device programs one iteration of the host's loop over `step` starts, inner loops not counted."""
        return sum(1 for place in self.device_programs if place == step)

    def memory(self) -> str:
        """The stores as a table, the largest first; values that live in one iteration of a loop are named below it."""
        stored = [t for t in self.tensors if t.persistent or math.prod(t.slots) > 1]
        rows = [("tensor", "type", "store", "slots", "bytes")]
        for t in sorted(stored, key=lambda t: -t.bytes):
            rows.append((t.name, t.type, t.kind, " x ".join(map(str, t.slots)) or "1", str(t.bytes)))
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        table = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        total = sum(t.bytes for t in stored)
        kept = "" if total == self.bytes else f", {self.bytes} of them between device programs"
        lines = [*table, f"in all {total} bytes{kept}"] if stored else ["nothing is stored"]
        passing = [t.name for t in self.tensors if t not in stored]
        if passing:
            lines += textwrap.wrap(
                f"one value at a time, inside a program: {', '.join(passing)}",
                100,
                subsequent_indent="  ",
                break_long_words=False,
            )
        return "\n".join(lines)

    def text(self) -> str:
        programs = [
            f"  {number}: {f'once each {place}' if place else 'once'}" for number, place in enumerate(self.device_programs)
        ]
        empty = any(t.persistent for t in self.tensors) and bool(self.device_programs)
        if empty:
            programs.insert(0, "  zeros for the stores: once")
        listed = "\n".join(programs)
        return (
            f"schedule\n{_indented(self.schedule)}\n\nstorage\n{_indented(self.memory())}\n\n"
            f"device programs: {self.compiles + empty}\n{listed}\n"
        )


def _listed(tensors: Sequence[StoredTensor]) -> str:
    """The largest ones, one a line."""
    largest = sorted(tensors, key=lambda t: -t.bytes)[:5]
    return "".join(f"\n    {t.name}: {t.type} x {math.prod(t.slots)} slots = {t.bytes:,} bytes" for t in largest)


def plan_of(graph: Graph, scheduled: Scheduled, staged: Staged | None) -> Plan:
    persistent = set(staged.store_keys) if staged is not None else set(scheduled.storage)
    called = value_names(graph)
    tensors = []
    for (node_id, output), storage in scheduled.storage.items():
        node = graph[node_id]
        type = node.outputs[output]
        name = called[node_id, output]
        each = type.size_in_bytes(scheduled.bounds) if type.is_static else 0
        key = (node_id, output)
        tensors.append(StoredTensor(name, str(type), storage.kind, storage.slots, each * storage.size, key in persistent))
    places = tuple(_places(staged.items, ())) if staged is not None else ()
    return Plan(scheduled.text(), tuple(tensors), places)


def _places(items: Sequence[HostItem], loops: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for item in items:
        if isinstance(item, Segment):
            found.append(", ".join(loops))
        elif isinstance(item, HostLoop):
            found += _places(item.body, (*loops, item.counter.name))
        elif isinstance(item, HostIf):
            found += _places(item.then, loops) + _places(item.orelse, loops)
    return found


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())

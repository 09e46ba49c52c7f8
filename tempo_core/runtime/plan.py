"""The plan of a program, before it runs: its schedule, where each tensor lives and in how many bytes, its XLA programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tempo_core.errors import OutOfMemoryPlanError
from tempo_core.ir.graph import Graph
from tempo_core.runtime.stage import HostIf, HostItem, HostLoop, Segment, Staged
from tempo_core.schedule import Scheduled


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
        stored = [t for t in self.tensors if t.persistent or t.kind != "register"]
        needed = sum(t.bytes for t in stored)
        if needed > limit:
            largest = sorted(stored, key=lambda t: -t.bytes)[:5]
            listed = "".join(f"\n    {t.name}: {t.type} x {math.prod(t.slots)} slots = {t.bytes:,} bytes" for t in largest)
            raise OutOfMemoryPlanError(
                f"the plan needs {needed:,} bytes for its stores and memory_limit allows {limit:,}; the largest:{listed}",
                where="the plan",
                hint="smaller bounds or shapes, a window instead of a whole step, Config(disable=('vectorize(t)',)), or a higher memory_limit",
            )

    def programs_per(self, step: str) -> int:
        """How many device programs one iteration of the host's loop over `step` starts, inner loops not counted."""
        return sum(1 for place in self.device_programs if place == step)

    def text(self) -> str:
        rows = [("tensor", "type", "kind", "slots", "bytes", "lives")]
        for t in sorted(self.tensors, key=lambda t: -t.bytes):
            lives = "between programs" if t.persistent else "inside a program"
            rows.append((t.name, t.type, t.kind, " x ".join(map(str, t.slots)) or "1", str(t.bytes), lives))
        widths = [max(len(row[k]) for row in rows) for k in range(6)]
        table = "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        programs = "\n".join(
            f"  {number}: {f'once each {place}' if place else 'once'}" for number, place in enumerate(self.device_programs)
        )
        return (
            f"schedule\n{_indented(self.schedule)}\n\nstorage\n{_indented(table)}\n  total between programs: {self.bytes} bytes\n\n"
            f"device programs: {self.compiles}\n{programs}\n"
        )


def plan_of(graph: Graph, scheduled: Scheduled, staged: Staged | None) -> Plan:
    persistent = set(staged.store_keys) if staged is not None else set(scheduled.storage)
    tensors = []
    for (node_id, output), storage in scheduled.storage.items():
        node = graph[node_id]
        type = node.outputs[output]
        name = (node.name or f"%{node_id}") + (f".{output}" if len(node.outputs) > 1 else "")
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

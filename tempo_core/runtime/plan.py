"""The plan of a program, before it runs: its schedule, the store of each tensor with its size in bytes, and its XLA programs."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tempo_core.errors import OutOfMemoryError, OutOfMemoryPlanError
from tempo_core.ir.graph import Graph
from tempo_core.ir.naming import head, value_names
from tempo_core.ir.ops import Merge
from tempo_core.ir.sources import Sources
from tempo_core.runtime.host import Chunks, HostIf, HostItem, HostLoop, Segment
from tempo_core.runtime.memory_table import StoredTensor, memory_text
from tempo_core.runtime.stage import Staged
from tempo_core.schedule import Scheduled
from tempo_core.schedule.outline import outline

_SMALLER = (
    "use smaller bounds or shapes, a window instead of a whole step, Config(tile={'t': 64}), Config(disable=('vectorize(t)',))"
)


@dataclass(frozen=True)
class Plan:
    """`device_programs`: for each XLA program, the loops in which the host starts it ("" if it runs once). `compiles` is their number."""

    schedule: str
    tensors: tuple[StoredTensor, ...]
    device_programs: tuple[str, ...]
    outline: str = ""  # the schedule in short form
    written_out: str = ""  # the loops that are written out, a line each, with what that costs

    @property
    def compiles(self) -> int:
        return len(self.device_programs)

    @property
    def bytes(self) -> int:
        """The bytes of the stores that live on the device between XLA programs. XLA itself manages temporaries inside a program."""
        return sum(t.bytes for t in self.tensors if t.persistent)

    def check_memory(self, limit: int) -> None:
        """Raise OutOfMemoryPlanError if the stores, also those that live only inside a program, do not fit in `limit` bytes."""
        needed = sum(t.bytes for t in self._stored())
        if needed > limit:
            raise OutOfMemoryPlanError(
                f"the plan needs {needed:,} bytes for its stores, but memory_limit allows {limit:,}; the largest stores:{_listed(self._stored())}",
                hint=f"{_SMALLER}, or a higher Config(memory_limit=...)",
            )

    def out_of_memory(self, said: str) -> OutOfMemoryError:
        """The error for a run that had too little memory. `said` is the message of the device or of NumPy."""
        said = next(iter(said.strip().splitlines()), "out of memory")
        return OutOfMemoryError(
            f"the run needs more memory than there is ({said}); its largest tensors:{_listed(self.tensors)}",
            hint=f"{_SMALLER}; to refuse such a program when it is compiled: Config(memory_limit=...)",
        )

    def _stored(self) -> list[StoredTensor]:
        return [t for t in self.tensors if t.persistent or t.kind != "register"]

    def programs_per(self, step: str) -> int:
        """The number of device programs that one iteration of the host's loop over `step` starts, without those of inner loops."""
        return sum(1 for place in self.device_programs if place == step)

    def memory(self, full: bool = False) -> str:
        """The stores as a table, the largest first. Values that live in one iteration of a loop are listed below the table.

        Tensors of one module, optimizer or object share a row, and small stores share the last row. With `full`, each has a row.
        """
        stored = [t for t in self.tensors if t.persistent or math.prod(t.slots) > 1]
        passing = [t for t in self.tensors if t not in stored]
        return memory_text(stored, passing, self.bytes, full)

    def text(self, full: bool = False) -> str:
        """Schedule, stores and device programs. With `full`, each statement and each store has a line of its own."""
        programs = [
            f"  {number}: {f'once each {place}' if place else 'once'}" for number, place in enumerate(self.device_programs)
        ]
        empty = any(t.persistent for t in self.tensors) and bool(self.device_programs)
        if empty:
            programs.insert(0, "  zeros for the stores: once")
        listed = "\n".join(programs)
        written_out = f"\nwritten out\n{_indented(self.written_out)}\n" if self.written_out else ""
        return (
            f"schedule\n{_indented(self.schedule if full else self.outline)}\n\nstorage\n{_indented(self.memory(full))}\n\n"
            f"device programs: {self.compiles + empty}\n{listed}\n"
            f"{written_out}"
        )


def _listed(tensors: Sequence[StoredTensor]) -> str:
    """The five largest tensors, one on each line."""
    largest = sorted(tensors, key=lambda t: -t.bytes)[:5]
    return "".join(f"\n    {t.name}: {t.type} x {math.prod(t.slots)} slots = {t.bytes:,} bytes" for t in largest)


def plan_of(
    graph: Graph, scheduled: Scheduled, staged: Staged | None, sources: Sources | None = None, parameters: Collection[str] = ()
) -> Plan:
    """The plan of a scheduled program. `sources` are the user's lines, `parameters` the names of modules' parameters."""
    persistent = set(staged.store_keys) if staged is not None else set(scheduled.storage)
    labels = value_names(graph)
    tensors = []
    for (node_id, output), storage in scheduled.storage.items():
        node = graph[node_id]
        type = node.outputs[output]
        key, name = (node_id, output), labels[node_id, output]
        each = type.size_in_bytes(scheduled.bounds) if type.is_static else 0
        noun = "parameters" if name in parameters else "tensors"
        group = f"{head(name)}{'|' if isinstance(node.op, Merge) else ''}"
        tensors.append(
            StoredTensor(name, str(type), storage.kind, storage.slots, each * storage.size, key in persistent, group, noun)
        )
    places = tuple(_places(staged.items, ())) if staged is not None else ()
    written_out = staged.unrolled.text(graph) if staged is not None else ""
    return Plan(scheduled.text(), tuple(tensors), places, outline(scheduled.root, graph, sources), written_out)


def _places(items: Sequence[HostItem], loops: tuple[str, ...]) -> list[str]:
    places: list[str] = []
    for item in items:
        if isinstance(item, Segment):
            places.append(", ".join(loops))
        elif isinstance(item, HostLoop):
            places += _places([*item.edge, *item.body], (*loops, item.counter.name))
        elif isinstance(item, Chunks):
            places.append(", ".join((*loops, f"some {item.counter.name}")))
        elif isinstance(item, HostIf):
            places += _places(item.then, loops) + _places(item.orelse, loops)
    return places


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())

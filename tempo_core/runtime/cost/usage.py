"""How much memory a run uses: every tensor with its bytes, place and lifetime, and the sums at each moment of the program.

A moment is a launch of a device program or a call of a function, in program order; what loops repeat is one moment. Stores, inputs and
results are counted exactly. The temporaries inside a device program are XLA's own figure if it is compiled, else a coarse estimate from
types alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tempo_core.ir import costs
from tempo_core.ir.graph import Graph, Key, Node
from tempo_core.ir.names.naming import names, value_names
from tempo_core.ir.names.user_lines import Sources
from tempo_core.ir.ops import Dataflow, Input, Output
from tempo_core.ir.types import TensorType
from tempo_core.runtime.cost.count import cost_of, size_at_an_end
from tempo_core.runtime.cost.kernels import bytes_of
from tempo_core.runtime.staged.host import HostCall, Loops, Segment, loop_names, placed, statements
from tempo_core.runtime.staged.stage import Staged
from tempo_core.schedule import Scheduled

DEVICE, HOST, TEMPORARY = "device", "host", "temporary"
ON_HOST, PART = "host", "part"  # kinds of stores: in the memory of the host, and what the device has of one


@dataclass(frozen=True)
class PlannedTensor:
    """Memory of one tensor.

    `type` is that of one value, in bounds; `shape` that of the whole array, in numbers. `kind` is "input", "result", "argument" (of a
    function), "temporary", or that of a store: "register", "window", "block"; "host" for one in the memory of the host, "part" for what
    the device has of it. It lives in `place`, "device" or "host", from moment
    `first` to moment `last`. `line` is the user's line, as `file:line`; "" if there is none.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    dtype: str
    kind: str
    slots: tuple[int, ...]
    bytes: int
    place: str
    first: int
    last: int
    line: str = ""


@dataclass(frozen=True)
class Moment:
    """A launch of a device program, a call of a function, or the end, with the bytes that are in memory then.

    `loops` are the host's loops around it. `statement` is the statement of a device program with the largest values, and `line` its line.
    Where `is_exact` is false, the temporaries of the device program are a coarse estimate, and not XLA's figure.
    """

    name: str
    loops: str = ""
    statement: str = ""
    line: str = ""
    device_bytes: int = 0
    host_bytes: int = 0
    is_exact: bool = True

    def __str__(self) -> str:
        return self.name + (f", once each {self.loops}" if self.loops else "")


@dataclass(frozen=True)
class Usage:
    """All tensors of a run, and its moments in program order."""

    tensors: tuple[PlannedTensor, ...]
    moments: tuple[Moment, ...]

    @staticmethod
    def of(tensors: Sequence[PlannedTensor], moments: Sequence[Moment]) -> Usage:
        """The usage with the bytes of each moment: those of the tensors that are alive then."""
        counted = []
        for at, moment in enumerate(moments):
            alive = [tensor for tensor in tensors if tensor.first <= at <= tensor.last]
            device, host = (sum(tensor.bytes for tensor in alive if tensor.place == place) for place in (DEVICE, HOST))
            counted.append(replace(moment, device_bytes=device, host_bytes=host))
        return Usage(tuple(tensors), tuple(counted))

    def without_temporaries(self) -> Usage:
        """What surely is in memory, before anything is compiled."""
        return Usage.of([tensor for tensor in self.tensors if tensor.kind != TEMPORARY], self.moments)

    def in_one_memory(self) -> Usage:
        """The usage of a device that shares its memory with the host: stores on the host take room there too."""
        tensors = [replace(tensor, place=DEVICE) if tensor.kind == ON_HOST else tensor for tensor in self.tensors]
        return Usage.of(tensors, self.moments)

    @property
    def bytes_moved(self) -> int:
        """The bytes that move between host and device at least: of stores there and back, of inputs that are fed in parts."""
        hosted = {tensor.name for tensor in self.tensors if tensor.kind == PART}
        return sum(
            tensor.bytes * (2 if tensor.kind == ON_HOST else 1)
            for tensor in self.tensors
            if tensor.place == HOST and (tensor.kind == ON_HOST or (tensor.kind == "input" and tensor.name in hosted))
        )

    @property
    def on_device(self) -> Moment:
        """The moment with the most bytes on the device."""
        return max(self.moments, key=lambda moment: moment.device_bytes)

    @property
    def on_host(self) -> Moment:
        """The moment with the most bytes on the host."""
        return max(self.moments, key=lambda moment: moment.host_bytes)

    @property
    def peaks(self) -> tuple[tuple[str, Moment, int], tuple[str, Moment, int]]:
        """For the device, and for the host: the moment with the most bytes there, and these."""
        return (DEVICE, self.on_device, self.on_device.device_bytes), (HOST, self.on_host, self.on_host.host_bytes)

    def alive(self, moment: Moment, place: str) -> list[PlannedTensor]:
        """The tensors in a place at a moment, the largest first."""
        at = self.moments.index(moment)
        there = (tensor for tensor in self.tensors if tensor.place == place and tensor.first <= at <= tensor.last)
        return sorted(there, key=lambda tensor: -tensor.bytes)


def usage_of(graph: Graph, scheduled: Scheduled, staged: Staged | None, sources: Sources, place: str) -> Usage:
    """The memory that a run uses. An interpreted program has its arrays in `place`."""
    counting = _Counting(graph, scheduled, sources)
    if staged is None:
        counting.interpreted(place)
    else:
        counting.staged(staged)
    return Usage.of(counting.tensors, counting.moments)


class _Counting:
    def __init__(self, graph: Graph, scheduled: Scheduled, sources: Sources):
        self.graph, self.scheduled, self.sources, self.bounds = graph, scheduled, sources, scheduled.bounds
        self.tensors: list[PlannedTensor] = []
        self.moments: list[Moment] = []
        self.outside: set[Key] = set()  # stores that are not inside of one device program
        self.labels, self.statements = value_names(graph), names(graph)

    def _add(
        self, name: str, type: TensorType, kind: str, slots: Sequence[int], place: str, first: int, last: int, line: str
    ) -> None:
        """Count a tensor with one value for each slot."""
        sizes = tuple(size_at_an_end(size, self.bounds).evaluate(self.bounds) for size in type.shape)
        whole = (*(number for number in slots if number > 1), *sizes)
        bytes = self._size(type) * math.prod(slots)
        self.tensors.append(
            PlannedTensor(name, str(type), whole, type.dtype, kind, tuple(slots), bytes, place, first, last, line)
        )

    def _add_bytes(self, name: str, bytes: int, place: str, moment: int, line: str) -> None:
        """Count memory of several values, of which only the sum is there."""
        if bytes:
            type = f"uint8[{bytes}]"
            self.tensors.append(PlannedTensor(name, type, (bytes,), "uint8", TEMPORARY, (), bytes, place, moment, moment, line))

    def _size(self, type: TensorType) -> int:
        """The bytes of one value."""
        return size_at_an_end(bytes_of(type), self.bounds).evaluate(self.bounds)

    def _line(self, node: Node) -> str:
        return next(iter(self.sources.of(node)), node.where) or ""

    def _store(self, key: Key, place: str, first: int, last: int, kind: str = "") -> None:
        node, storage = self.graph[key[0]], self.scheduled.storage[key]
        kind = kind or storage.kind
        self._add(self.labels[key], node.outputs[key[1]], kind, storage.slots, place, first, last, self._line(node))

    def _argument(self, key: Key, type: TensorType, place: str, first: int, last: int) -> None:
        """A value that a function on the host takes or gives."""
        node = self.graph[key[0]]
        self._add(self.labels.get(key, node.name), type, "argument", (), place, first, last, self._line(node))

    def _result(self, node: Node, place: str, first: int, last: int) -> None:
        """A result: the values that it reads of its source, and these at each point of its own steps, of which a run may choose one."""
        (edge,) = node.inputs
        source, read = self.graph[edge.source], self.graph.edge_type(edge)
        own = [step.bound_expr for step in node.domain.steps if step not in self.graph.chosen]
        slots = [size_at_an_end(number, self.bounds).evaluate(self.bounds) for number in (*own, *edge.lengths)]
        type = TensorType(read.dtype, read.shape[len(edge.lengths) :])
        name = self.labels.get((edge.source, edge.output), source.name)
        self._add(name, type, "result", slots, place, first, last, self._line(source))

    def _results(self) -> list[Node]:
        return [node for node in self.graph if isinstance(node.op, Output)]

    # -- interpreted programs -----------------------------------------------------------------------------------------

    def interpreted(self, place: str) -> None:
        """One moment: all stores at once, and the largest statement."""
        cost = cost_of(self.scheduled, None, in_numbers=True)
        largest = max(cost.by_statement, key=lambda each: each.numbers["temporaries"], default=None)
        self.moments = [Moment("the whole run, interpreted", statement=largest.name if largest else "")]
        for node in self.graph:
            if isinstance(node.op, Input):
                self._add(node.op.name, node.outputs[0], "input", (), place, 0, 0, node.where)
        for key in self.scheduled.storage:
            self._store(key, place, 0, 0)
        for node in self._results():
            self._result(node, HOST, 0, 0)
        if largest is not None and largest.numbers["temporaries"]:
            self._add_bytes(largest.name, largest.numbers["temporaries"], place, 0, "")

    # -- device programs and calls ------------------------------------------------------------------------------------

    def staged(self, staged: Staged) -> None:
        items = list(placed(staged.items))
        self.moments = [*(self._moment(staged, item, loops) for item, loops in items), Moment("the end of the run")]
        end = len(items)
        launches = [(item, number) for number, (item, _) in enumerate(items) if isinstance(item, Segment)]
        calls = {item.slot: number for number, (item, _) in enumerate(items) if isinstance(item, HostCall)}
        self._inputs(staged, launches, end)
        self._stores(staged, launches, end)
        for segment, number in launches:
            for fetch in segment.fetches:
                node = self.graph[fetch.execute.node]
                if isinstance(node.op, Output):
                    self._result(node, DEVICE, number, end)
                    self._result(node, HOST, end, end)
                    continue
                for edge in staged.lowering.edges(fetch.execute):
                    key, type = (edge.source, edge.output), self.graph.edge_type(edge)
                    self._argument(key, type, DEVICE, number, end)
                    self._argument(key, type, HOST, calls[fetch.slot], calls[fetch.slot])
            for put in segment.puts:
                for key in put.keys:
                    type = self.graph[key[0]].outputs[key[1]]
                    self._argument(key, type, HOST, min(calls[put.slot], number), number)
                    self._argument(key, type, DEVICE, number, number)
            self._temporaries(staged, segment, number)
        for node in self._results():
            if (node.id, 0) in staged.kept_outputs:
                self._result(node, HOST, end, end)

    def _stores(self, staged: Staged, launches: Sequence[tuple[Segment, int]], end: int) -> None:
        """Stores that outlive a device program. The others begin and end in one, as temporaries."""
        created = {key: number for segment, number in launches for key in segment.creates}
        passed = {key for segment, _ in launches for keys in segment.stores_passed for key in keys}
        self.outside = passed | {key for segment, _ in launches for key in segment.writes} | set(staged.kept)
        for key in staged.store_keys:
            if key not in self.outside:
                continue
            if key not in self.scheduled.storage:  # a result inside of a loop
                self._result(self.graph[key[0]], DEVICE, created.get(key, 0), end)
            elif key in staged.hosted:
                self._parts(staged, key, launches, end)
            elif key not in staged.kept:
                self._store(key, DEVICE, created.get(key, 0), end)
            else:
                self._store(key, HOST, 0, end)
                readers = [number for segment, number in launches if key in segment.reads]
                if readers:
                    self._store(key, DEVICE, readers[0], end)

    def _parts(self, staged: Staged, key: Key, launches: Sequence[tuple[Segment, int]], end: int) -> None:
        """A store on the host, and its part on the device. While a launch works, the part before or after it may be there too."""
        store = staged.hosted[key]
        node, type = self.graph[key[0]], self.graph[key[0]].outputs[key[1]]
        if not store.is_fed:
            self._add(self.labels[key], type, ON_HOST, store.storage.slots, HOST, 0, end, self._line(node))
        touching = [number for segment, number in launches if key in (*segment.reads, *segment.writes)]
        on_device = self.labels[key], type, PART, store.on_device.slots, DEVICE
        if touching:
            self._add(*on_device, touching[0], end, self._line(node))
        for number in touching if store.points < store.slots else ():
            self._add(*on_device, number, number, self._line(node))

    def _inputs(self, staged: Staged, launches: Sequence[tuple[Segment, int]], end: int) -> None:
        """Fed arrays: the caller's on the host, and on the device, during a launch or, if several launches read them, the whole run."""
        for name, node in self.graph.fed().items():
            readers = [number for segment, number in launches if name in segment.inputs]
            store = staged.hosted.get((node.id, 0))
            slots = store.storage.slots if store is not None and store.is_fed else ()
            self._add(name, node.outputs[0], "input", slots, HOST, 0, end, node.where)
            if readers:
                several = staged.launches.readers[name] > 1
                first, last = (0, end) if several else (readers[0], readers[0])
                self._add(name, node.outputs[0], "input", (), DEVICE, first, last, node.where)

    def _moment(self, staged: Staged, item: Segment | HostCall, loops: Loops) -> Moment:
        around = loop_names(loops)
        if isinstance(item, HostCall):
            node = self.graph[item.execute.node]
            return Moment(f"function {self.statements[node.id]}", around, self.statements[node.id], self._line(node))
        largest = max(self._nodes(item), key=self._values, default=None)
        statement, line = ("", "") if largest is None else (self.statements[largest.id], self._line(largest))
        is_exact = staged.temporaries(item) is not None
        return Moment(f"device program {item.number}", around, statement, line, is_exact=is_exact)

    # -- temporaries of device programs -------------------------------------------------------------------------------

    def _temporaries(self, staged: Staged, segment: Segment, number: int) -> None:
        """The rows of temporaries: the stores inside the device program as far as they fit in its figure, and one row for the rest."""
        nodes, stores = self._nodes(segment), self._inside(segment)
        bytes = staged.temporaries(segment)
        if bytes is None:
            bytes = sum(stores.values()) + max(map(self._values, nodes), default=0)
        for key in sorted(stores, key=lambda key: -stores[key]):
            if 0 < stores[key] <= bytes:
                self._store(key, DEVICE, number, number, TEMPORARY)
                bytes -= stores[key]
        moment = self.moments[number]
        self._add_bytes(f"temporaries of {moment.name}", bytes, DEVICE, number, moment.line)

    def _nodes(self, segment: Segment) -> list[Node]:
        """The nodes of a device program, in program order."""
        numbers = dict.fromkeys(execute.node for item in segment.items for execute in statements(item))
        return [self.graph[number] for number in numbers]

    def _inside(self, segment: Segment) -> dict[Key, int]:
        """The stores of several slots that begin and end in a device program, with their bytes."""
        keys = ((node.id, output) for node in self._nodes(segment) for output in range(len(node.outputs)))
        sizes = {
            key: self.scheduled.storage[key].size for key in keys if key in self.scheduled.storage and key not in self.outside
        }
        return {key: size * self._size(self.graph[key[0]].outputs[key[1]]) for key, size in sizes.items() if size > 1}

    def _values(self, node: Node) -> int:
        """The bytes of the values that a statement computes into memory, from their types alone."""
        types = list(node.outputs)
        if isinstance(node.op, Dataflow):
            body = node.op.body
            for op, sources, targets in body.instructions:
                if costs.place(op, tuple(body.slot_types[source] for source in sources)) in (costs.REDUCED, costs.MEMORY):
                    types += [body.slot_types[target] for target in targets]
        return sum(map(self._size, types))

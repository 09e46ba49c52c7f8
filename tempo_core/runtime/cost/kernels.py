"""What one execution of a statement does in memory: the kernels that XLA makes of it, with the bytes that each reads and writes.

A value that is fused into its only reader is in no memory. What a kernel reads is what its fused operands read. The table
`ir/costs.py` says which ops are fused; the reads of stores are those of `runtime/lower/placement.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from tempo_core.ir import costs, ops
from tempo_core.ir.graph import Edge, Key
from tempo_core.ir.ops import Constant, Input, Op, Types, product
from tempo_core.ir.ops.work import PRODUCT, elements
from tempo_core.ir.types import ITEM_SIZE, TensorType
from tempo_core.prices import is_dear
from tempo_core.runtime.lower.placement import Placement
from tempo_core.schedule import Scheduled
from tempo_core.symbolic.domain import Point
from tempo_core.symbolic.expr import Expr, Minimum, Monomial, Symbol, maximum
from tempo_core.symbolic.isl.counting import replaced
from tempo_core.symbolic.proof import provably_nonnegative

ZERO = Expr.of(0)
Reads = dict[Hashable, Expr]  # bytes read, by what they are read from
FIGURES = "operations", "bytes_read", "bytes_written"
PRICED = "products", "dear"  # of the operations: those of products, and of dear operations, which have their own price


def bytes_of(type: TensorType) -> Expr:
    return ITEM_SIZE[type.dtype] * elements(type.shape)


@dataclass
class Kernels:
    """The sums over the kernels of one execution. `sorts` are (number, size): operations times the logarithm of a size."""

    sums: dict[str, Expr] = field(default_factory=lambda: dict.fromkeys((*FIGURES, *PRICED), ZERO))
    sorts: list[tuple[Expr, Expr]] = field(default_factory=list)
    alive: list[Expr] = field(default_factory=list)  # bytes of the intermediate values in memory, kernel by kernel

    def compute(self, op: Op, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> None:
        """Count the operations of an op."""
        number = costs.operations(op, tuple(inputs), tuple(outputs))
        axis = costs.sorted_axis(op, tuple(inputs))
        if axis is None:
            self.add("operations", number)
            if op.cost_class == PRODUCT:
                self.add("products", number)
            elif is_dear(op):
                self.add("dear", number)
        else:
            self.sorts.append((number, axis))

    def add(self, figure: str, number: Expr) -> None:
        self.sums[figure] = self.sums[figure] + number

    def move(self, reads: Reads, written: Expr) -> None:
        """Count one kernel."""
        self.add("bytes_read", sum(reads.values(), ZERO))
        self.add("bytes_written", written)


@dataclass
class Value:
    """A value inside a statement. Where it is not `in_memory`, whoever reads it computes it, and reads `reads`."""

    bytes: Expr
    reads: Reads
    in_memory: bool
    producer: Op | None = None
    is_free: bool = False  # may be computed again for each reader


class Reading:
    """Reads of edges, as operands. `slots` are those of each store, as expressions of the bounds; `lowering` is that of a staged program."""

    def __init__(self, scheduled: Scheduled, slots: Mapping[Key, tuple[Expr, ...]], lowering: Placement | None):
        self.graph, self.storage, self.slots, self.bounds = scheduled.graph, scheduled.storage, slots, scheduled.bounds
        self.layouts = {} if lowering is None else {key: lowering.layout(key) for key in scheduled.storage}
        # The slots of one array of each store: 1 along the step along which it is split.
        self.arrays = {key: store.slots if lowering is None else lowering.slots(key) for key, store in scheduled.storage.items()}

    def read(self, edge: Edge, kernels: Kernels) -> Value:
        """The value that an edge delivers. What its read moves by itself is counted in `kernels`: gathers of several points."""
        source = self.graph[edge.source]
        type = self.graph.edge_type(edge)
        key = (edge.source, edge.output)
        if isinstance(source.op, (Input, Constant)):
            is_view = all(isinstance(index, Point) for index in edge.index)
            reads: Reads = {(key, edge.index): bytes_of(source.outputs[edge.output])}
            return Value(bytes_of(type), reads, is_view, source.op if is_view else ops.Broadcast((), ()), not is_view)
        value = source.outputs[edge.output].substitute(edge.points(source.domain))
        item = bytes_of(value)
        # The sizes of the dimensions of steps, as far as they are read.
        sizes = [slots if number > 1 else Expr.of(1) for slots, number in zip(self.slots[key], self.arrays[key], strict=True)]
        spans: list[int] = []
        whole = item * product(tuple(sizes))
        result = Value(whole, {(key, edge.index): whole}, True)
        points_first = sorted(range(len(edge.index)), key=lambda k: not isinstance(edge.index[k], Point))
        for k in points_first:
            index, stored = edge.index[k], self.arrays[key][k] > 1
            if isinstance(index, Point):
                sizes[k] = Expr.of(1)
                kind = "slice" if stored else "whole"
            else:
                sizes[k] = index.length
                kind = self._range(key, edge, k) if stored else "repeat"
                spans.append(k)
            bytes = item * product(tuple(sizes))
            if kind == "take":
                kernels.move({**dict.fromkeys(result.reads, bytes), "positions": 4 * sizes[k]}, bytes)
                kernels.alive.append(bytes)
                result = Value(bytes, {("taken", key, edge.index): bytes}, True)
            elif kind == "slice":
                result = Value(bytes, dict.fromkeys(result.reads, bytes), False)
            elif kind == "repeat":
                result = Value(bytes, result.reads, False, is_free=True)
        if self._turned(key, edge, spans):
            result = Value(result.bytes, result.reads, False)
        if any(not isinstance(index, Point) and index.size is not None for index in edge.index):
            kernels.add("operations", product(type.shape))  # zeros past the end of the range
            result = Value(result.bytes, result.reads, False, ops.Where())
        return result

    def _range(self, key: Key, edge: Edge, k: int) -> str:
        """How a range is read along step k: the "whole" store, a "slice", or positions that it has to "take" one by one."""
        index, store = edge.index[k], self.storage[key]
        assert not isinstance(index, Point)
        source = self.graph[key[0]]
        slots, lasting = store.slots[k], store.lasting_along(k)
        sized = not index.length.steps
        size = index.length.evaluate(self.bounds) if sized else 0
        whole = slots >= self.bounds[source.domain.steps[k].bound_symbol] if lasting is None else lasting.stride == 1
        if whole and sized and lasting is None and not index.start.steps:
            start = index.start.evaluate(self.bounds)
            if start == 0 and size == slots and index.stride == 1:
                return "whole"
            if start + (size - 1) * index.stride < slots:
                return "slice"
        aligned = sized and size and slots % size == 0 and all(c % size == 0 for _, c in index.start.terms)
        return "slice" if whole and index.stride == 1 and (index.size is None or aligned) else "take"

    def _turned(self, key: Key, edge: Edge, spans: Sequence[int]) -> bool:
        """Whether the dimensions of a read lie in another order than the reader sees them."""
        stored = [k for k, slots in enumerate(self.arrays[key]) if slots > 1]
        layout = self.layouts.get(key)
        if layout is None or self.storage[key].size == 1:
            return False
        points = {place for place, k in enumerate(stored) if k not in spans}
        left = [dimension for dimension in layout if dimension not in points]
        return left != sorted(left)


def _sliced(value: Value, bytes: Expr) -> Reads:
    """What is read of a value for a part of it. Of a part of a part, too, only what is asked for is read."""
    is_view = value.in_memory or isinstance(value.producer, costs.PARTS)
    return dict.fromkeys(value.reads, bytes) if is_view else dict(value.reads)


class Island:
    """The kernels of a fused island. Values are numbered as in its body; an alias has the number of the value that it shows."""

    def __init__(self, body: ops.Dataflowed, operands: Sequence[Value]):
        self.body, self.types = body, body.slot_types
        self.values = [*operands, *(Value(bytes_of(t), {}, False) for t in self.types[len(operands) :])]
        self.roots = list(range(len(self.types)))
        # Op, operand types, operands, results; no aliases.
        self.work: list[tuple[Op, Types, tuple[int, ...], tuple[int, ...]]] = []
        for op, sources, targets in body.instructions:
            if costs.place(op, self._types(sources)) == costs.ALIAS:
                self.roots[targets[0]] = self.roots[sources[0]]
                continue
            self.work.append((op, self._types(sources), tuple(self.roots[s] for s in sources), targets))
            from_nothing = all(self._is_from_nothing(self.roots[s]) for s in sources)
            for target in targets:
                self.values[target].producer = op
                self.values[target].is_free = isinstance(op, costs.FREE) or from_nothing
        self.results = {self.roots[slot] for slot in body.results}
        reads = [(source, op, position) for op, _, sources, _ in self.work for position, source in enumerate(sources)]
        whole = {source for source, op, position in reads if not (isinstance(op, costs.PARTS) and position == 0)}
        # Parts of which only parts are read: where these lie is all that is computed of them.
        self.parts = {targets[0] for op, _, _, targets in self.work if isinstance(op, costs.PARTS)} - whole - self.results
        self.stored = self._stored()

    def _types(self, slots: Sequence[int]) -> Types:
        return tuple(self.types[slot] for slot in slots)

    def _is_from_nothing(self, slot: int) -> bool:
        """Whether a value follows from positions and constants, so that computing it again reads nothing."""
        value = self.values[slot]
        return not value.in_memory and not value.reads and value.is_free

    def _stored(self) -> set[int]:
        """The values that a kernel writes: its own results, and fused values that several kernels read, or one reads from memory."""
        stored, needed = set(self.results), set[int]()
        kernels: dict[int, set[int]] = {}  # the kernels that read a value, directly or through fused values

        def settle(slot: int, is_kernel: bool) -> None:
            shared = len(kernels.get(slot, ())) > 1 and not self.values[slot].is_free
            if is_kernel or slot in needed or shared:
                stored.add(slot)

        for op, inputs, sources, targets in reversed(self.work):
            for target in targets:
                settle(target, costs.place(op, inputs) in (costs.MEMORY, costs.REDUCED))
            kernel = {t for t in targets if t in stored} or set().union(*(kernels.get(t, set()) for t in targets))
            for source in sources:
                kernels.setdefault(source, set()).update({min(kernel)} if stored & set(targets) else kernel)
                if costs.reads_in_memory(op, inputs, self.values[source].producer, self.values[source].is_free):
                    needed.add(source)
        for slot in range(len(self.body.input_types)):
            settle(slot, False)
        return {slot for slot in stored if not self.values[slot].in_memory}

    def count(self, kernels: Kernels) -> None:
        """Add what the kernels compute, read and write."""
        written: list[int] = []  # values in memory, in the order in which kernels write them
        last: dict[Hashable, int] = {}  # the last kernel that reads a value

        def settle(slot: int, reads: Reads, extra: Expr = ZERO) -> None:
            value = self.values[slot]
            value.reads = reads
            if slot in self.stored:
                kernels.move(reads, value.bytes + extra)
                last.update(dict.fromkeys(reads, len(written)))
                written.append(slot)
                value.reads, value.in_memory = {slot: value.bytes}, True

        for slot in range(len(self.body.input_types)):
            settle(slot, self.values[slot].reads)
        for op, inputs, sources, targets in self.work:
            if targets[0] not in self.parts:
                kernels.compute(op, inputs, self._types(targets))
            scatters = isinstance(op, ops.Scatter) and costs.place(op, inputs) == costs.MEMORY
            for target in targets:
                reads = self._reads(op, sources, self.values[target].bytes)
                if isinstance(op, ops.Udf) and op.cost:  # what it moves besides its results is counted with the first of them
                    rest = op.cost[1] - sum((self.values[t].bytes for t in targets), ZERO)
                    rest = rest if provably_nonnegative(rest) else maximum(rest, ZERO)
                    reads = {op: rest} if target == targets[0] else {}
                settle(target, reads, bytes_of(inputs[0]) if scatters else ZERO)
        for moment in range(len(written)):
            alive = [s for at, s in enumerate(written) if at <= moment <= last.get(s, at) and s not in self.results]
            if alive:
                kernels.alive.append(sum((self.values[slot].bytes for slot in alive), ZERO))

    def _reads(self, op: Op, sources: Sequence[int], bytes: Expr) -> Reads:
        """What the computation of an op's result, of so many bytes, reads from memory."""
        reads: Reads = {}
        for position, slot in enumerate(sources):
            value = self.values[slot]
            is_part = isinstance(op, costs.PARTS) and position == 0
            for source, amount in (_sliced(value, bytes) if is_part else value.reads).items():
                if source not in reads or is_at_least(amount, reads[source]):
                    reads[source] = amount
        return reads


def is_at_least(a: Expr, b: Expr) -> bool:
    """Whether a is at least b, monomial by monomial."""
    return all(coefficient >= 0 for _, coefficient in (a - b).terms)


def largest(sizes: Sequence[Expr], bounds: Mapping[Symbol, int]) -> list[Expr]:
    """The sizes that may be the largest: no other one is larger for these bounds, and grows at least as fast in every bound."""
    kept: list[Expr] = []
    for size in sorted(dict.fromkeys(sizes), key=lambda s: -s.evaluate(bounds)):
        if not any(_outgrows(other, size) for other in kept):
            kept.append(size)
    return kept


def _outgrows(a: Expr, b: Expr) -> bool:
    """Whether each monomial of b divides one of a, with a smaller coefficient if they are equal. A minimum is at most its arguments."""
    minima = [atom for atom in b.atoms if isinstance(atom, Minimum)]
    variants = [b] if not minima else [b, *(replaced(b, m, part) for m in minima for part in m.args)]
    return any(all(any(_divides(one, other) for other in a.terms) for one in variant.terms) for variant in variants)


def _divides(one: tuple[Monomial, int], other: tuple[Monomial, int]) -> bool:
    powers = dict(other[0])
    return (one[0] == other[0] and one[1] <= other[1]) or (
        one[0] != other[0] and all(power <= powers.get(atom, 0) for atom, power in one[0])
    )

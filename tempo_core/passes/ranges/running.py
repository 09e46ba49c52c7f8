"""Running sums of outer products, perhaps with decay, that only contractions read: `s[t] = a[t] * s[t - 1] + outer(k[t], v[t])`.

`q[t] @ s[t]` is a contraction. So is the sum of the products of two running sums, which is the gradient of the gate a.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tempo_core import prices
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, constant_op
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Labelled
from tempo_core.ir.ops import product
from tempo_core.passes.clean.rules import constant_number
from tempo_core.passes.ranges.factors import factors_of, narrowed
from tempo_core.passes.ranges.linear_forms import shift_of
from tempo_core.passes.ranges.recurrences import Scan
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Point, Range, full_range, identity
from tempo_core.symbolic.expr import Symbol

IsThere = Callable[[int, Symbol], bool]


@dataclass(frozen=True)
class RunningSum:
    """The node `node`: at point t of `step` the sum of the products of `factors` up to t, or from t on if `reverse`.

    Both factors have dimensions that the other one lacks. At each point the sum so far is multiplied by `gate`, whose dimensions are
    those of one factor, or are shared by both. `later` is a node with its values one point later, zero at the first point.
    """

    node: Node
    later: Node | None
    factors: tuple[Labelled, Labelled]
    gate: Labelled
    step: Symbol
    reverse: bool

    @property
    def shared(self) -> tuple[int, ...]:
        """The dimensions of both factors."""
        return tuple(axis for axis in sorted(self.factors[0].labels) if axis in self.factors[1].labels)

    @property
    def earlier(self) -> int:
        """How far away the point is that the sum meets before each point."""
        return 1 if self.reverse else -1

    def of_one(self, slot: int) -> tuple[int, ...]:
        """The dimensions of one factor only."""
        return tuple(axis for axis in self.factors[slot].labels if axis not in self.factors[1 - slot].labels)

    def slot_of(self, axes: tuple[int, ...]) -> int | None:
        """The factor that alone has these dimensions, and no others alone."""
        return next((slot for slot in range(2) if sorted(self.of_one(slot)) == sorted(axes)), None)


@dataclass(frozen=True)
class Contraction:
    """A node that contracts a running sum with a value: `node = query @ sum` over all dimensions of one factor.

    `slot` is the number of that factor. Dimension k of the query is dimension `axes[k]` of the sum; -1 - k is a dimension that only the
    query has. `results` are the dimensions of the node's value, in the same way. With `before`, the node reads the sum at the point that
    the sum meets before the node's own one.
    """

    node: Node
    sums: tuple[RunningSum]
    before: bool
    query: Edge
    axes: tuple[int, ...]
    slot: int
    results: tuple[int, ...]


@dataclass(frozen=True)
class Pairing:
    """A node that sums the products of two running sums over all dimensions but `results`.

    `merge` selects the products at some points, and zeros at others. `slots` are the factors of the second sum with the own dimensions of
    each factor of the first one. The results have the dimensions of both gates, and lack some of one of the factors.
    """

    node: Node
    sums: tuple[RunningSum, RunningSum]
    before: tuple[bool, bool]
    product: Node
    merge: Node | None
    slots: tuple[int, int]
    results: tuple[int, ...]


Reader = Contraction | Pairing
Read = tuple[RunningSum, bool]  # with whether the sum is read at the point before


def contracted_sums(graph: Graph, scans: list[Scan], is_there: IsThere) -> tuple[dict[int, RunningSum], list[Reader]]:
    """The scans that are running sums of outer products, and that only contractions read, by their nodes, and all these contractions.

    `is_there` says whether a node's values at all points of a step are there at once: those that the sum is contracted with must be.
    """
    candidates = (_running_sum(graph, scan) for scan in scans if scan.node.id in graph.nodes)
    sums = {running.node.id: running for running in candidates if running is not None}
    readers = _Readers(graph, sums, is_there)
    contractions = {number: each for number in sums if (each := readers.of(number)) is not None}
    while left := [
        n for n, each in contractions.items() if any(s.node.id not in contractions for reader in each for s in reader.sums)
    ]:
        for number in left:
            del contractions[number]
    unique = {reader.node.id: reader for each in contractions.values() for reader in each}
    return {number: sums[number] for number in contractions}, list(unique.values())


def _running_sum(graph: Graph, scan: Scan) -> RunningSum | None:
    """A scan as a running sum of outer products; None if it is none."""
    products, gate = graph[scan.terms.source], None
    is_own = scan.terms.is_own_point(products.domain) and products.domain == scan.node.domain
    factors = factors_of(graph, products) if is_own and products.domain.condition is TRUE else None
    if scan.coefficients is None:
        gate = Labelled(Builder(graph, scan.node, Domain(())).add(constant_op(scan.node.outputs[0].dtype, 1.0)), ())
    elif factors is not None:
        gate = narrowed(graph, scan.coefficients)
    if factors is None or gate is None:
        return None
    running = RunningSum(graph[scan.node.id], scan.later, factors, gate, scan.step, scan.reverse)
    own = [set(running.of_one(slot)) for slot in range(2)]
    is_outer = all(own) and not all(axes & set(gate.labels) for axes in own)
    elements = product(tuple(running.node.outputs[0].shape[axis] for axis in set.union(*own)))
    return running if is_outer and prices.nominal(elements) >= prices.LEAST_ELEMENTS_OF_A_BLOCKED_SUM else None


class _Readers:
    """What reads the running sums of a graph.

    `reads` are the nodes that are a running sum, by number, with whether they are that of the point before: the state of `tp.carry`.
    """

    def __init__(self, graph: Graph, sums: dict[int, RunningSum], is_there: IsThere):
        self.graph, self.is_there, self.users = graph, is_there, graph.users() if sums else {}
        self.reads = {number: (running, False) for number, running in sums.items()}
        self.reads |= {running.later.id: (running, True) for running in sums.values() if running.later is not None}

    def of(self, number: int) -> list[Reader] | None:
        """The contractions of a running sum, if nothing else reads it."""
        nodes = [node for node, (running, _) in self.reads.items() if running.node.id == number and node in self.users]
        each = [self._contractions(*user) for node in nodes for user in self.users[node] if user[0].id not in nodes]
        return [reader for several in each for reader in several] if all(each) else None

    def _is_selection(self, merge: Node, product: Node) -> bool:
        """Whether a node is a product at some points, and zero at all others."""
        others = [edge for edge in merge.inputs if edge.source != product.id]
        is_zero = all(constant_number(self.graph, edge.source) == 0 for edge in others)
        return (
            isinstance(merge.op, ops.Merge)
            and merge.domain.condition is TRUE
            and len(others) == len(merge.inputs) - 1
            and is_zero
        )

    def _read(self, edge: Edge) -> Read | None:
        """The running sum that an edge reads, and whether that of the point before; None if it reads none, or that of another point."""
        if edge.source not in self.reads:
            return None
        running, is_later = self.reads[edge.source]
        delay = shift_of(edge, self.graph[edge.source], running.step)
        return (running, is_later or delay != 0) if delay == 0 or (delay == running.earlier and not is_later) else None

    def _contractions(self, reader: Node, slot: int) -> list[Reader]:
        """What contracts a running sum in a node, or in sums of it; nothing if the node does anything else."""
        reads = [self._read(edge) for edge in reader.inputs]
        if len(reads) != 2 or (read := reads[slot]) is None or reader.domain.condition.steps - {read[0].step}:
            return []
        if isinstance(reader.op, ops.Binary) and reader.op.fn == "mul":
            return self._pairings(reader, *reads)
        contraction = self._contraction(*read, reader, slot)
        return [] if contraction is None else [contraction]

    def _sum_of_each_point(self, node: Node, summed: Node, step: Symbol) -> Node:
        """The node that sums a value over dimensions, if it does so at its own point. One that also sums over all points is split."""
        (*_, edge), op = node.inputs, node.op
        ranges = [(s, at) for s, at in edge.by_step(summed.domain).items() if isinstance(at, Range)]
        if ranges != [(step, full_range(step))] or not isinstance(op, ops.Reduce) or op.fn != "sum" or op.axes[:1] != (0,):
            return node
        own = Edge(summed.id, identity(summed.domain))
        each = Builder(self.graph, summed).add(ops.Reduce("sum", tuple(axis - 1 for axis in op.axes[1:])), own)
        self.graph.put(replace(node, op=ops.Reduce("sum", (0,)), inputs=(edge.of(each.source),)))
        return self.graph[each.source]

    def _contraction(self, running: RunningSum, before: bool, node: Node, slot: int) -> Contraction | None:
        op, query = node.op, node.inputs[1 - slot]
        is_readable = query.source not in self.reads and self._is_readable(query, running.step)
        if not isinstance(op, ops.Dot) or running.step not in node.domain or not is_readable:
            return None
        contracts, batches = (op.left_contract, op.right_contract), (op.left_batch, op.right_batch)
        factor = running.slot_of(contracts[slot])
        if factor is None or tuple(sorted(batches[slot])) != running.shared:
            return None
        axes = {other: axis for pair in (contracts, batches) for axis, other in zip(pair[slot], pair[1 - slot], strict=True)}
        in_query = tuple(axes.get(k, -1 - k) for k in range(self.graph.edge_rank(query)))
        free = tuple(axis for axis in in_query if axis < 0)
        rest = tuple(axis for axis in range(running.node.outputs[0].rank) if axis not in contracts[slot] + batches[slot])
        results = (*batches[slot], *rest, *free) if slot == 0 else (*batches[slot], *free, *rest)
        return Contraction(node, (running,), before, query, in_query, factor, results)

    def _is_readable(self, query: Edge, step: Symbol) -> bool:
        """Whether a value can be read at all points of a step at once."""
        source = self.graph[query.source]
        if source.domain.condition is not TRUE or any(isinstance(at, Range) for at in query.index):
            return False
        at = query.by_step(source.domain).get(step)
        moves = any(step in other.steps for s, other in query.by_step(source.domain).items() if s != step)
        return not moves and (at is None or (at == Point(step.expr) and self.is_there(source.id, step)))

    def _pairings(self, product: Node, left: Read | None, right: Read | None) -> list[Reader]:
        """All that reads the products of two running sums, if these are sums of them, or of a selection of them and zeros."""
        if left is None or right is None:
            return []
        (first, _), (second, _), before = left, right, (left[1], right[1])
        if first.step != second.step or set(first.gate.labels) != set(second.gate.labels):
            return []
        slots = tuple(second.slot_of(first.of_one(slot)) for slot in range(2))
        pairings: list[Reader] = []
        for reader, _ in self.users[product.id]:
            merge = reader if self._is_selection(reader, product) else None
            summed = merge or product
            for user in [user for user, _ in self.users[reader.id]] if merge is not None else [reader]:
                node = self._sum_of_each_point(user, summed, first.step)
                is_sum = isinstance(node.op, ops.Reduce) and node.op.fn == "sum" and node.domain == summed.domain
                results = tuple(k for k in range(summed.outputs[0].rank) if not is_sum or k not in node.op.axes)  # type: ignore[attr-defined]
                is_contracted = any(not set(first.of_one(slot)) <= set(results) for slot in range(2))
                if not is_sum or None in slots or not is_contracted or not set(first.gate.labels) <= set(results):
                    return []
                pairings.append(Pairing(node, (first, second), before, product, merge, slots, results))  # type: ignore[arg-type]
        return pairings

"""Running sums of outer products that only contractions read: `s[t] = s[t - 1] + outer(k[t], v[t])` and `q[t] @ s[t]`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import read_at
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Point, Range, full_range
from tempo_core.symbolic.expr import Symbol


@dataclass(frozen=True)
class Factor:
    """A factor of a product: dimension k of the value of `edge` is dimension `axes[k]` of the product."""

    edge: Edge
    axes: tuple[int, ...]


@dataclass(frozen=True)
class RunningSum:
    """The node `value`: at point t of `step` the sum of the products of `factors` up to t, or from t on if `reverse`.

    `products` is the node of the products. Both factors have dimensions that the other one lacks.
    """

    value: Node
    products: Node
    factors: tuple[Factor, Factor]
    step: Symbol
    reverse: bool

    @property
    def shared(self) -> tuple[int, ...]:
        """The dimensions of both factors."""
        return tuple(axis for axis in sorted(self.factors[0].axes) if axis in self.factors[1].axes)

    def of_one(self, slot: int) -> tuple[int, ...]:
        """The dimensions of one factor only."""
        return tuple(axis for axis in self.factors[slot].axes if axis not in self.factors[1 - slot].axes)


@dataclass(frozen=True)
class Contraction:
    """A node that contracts a running sum, read at t + `delay`, with a value: `node = query @ sum` over all dimensions of one factor.

    `slot` is the number of that factor. Dimension k of the query is dimension `axes[k]` of the sum; -1 - k is a dimension that only the
    query has. `results` are the dimensions of the node's value, in the same way.
    """

    node: Node
    query: Edge
    axes: tuple[int, ...]
    slot: int
    results: tuple[int, ...]
    delay: int


def contracted_sums(graph: Graph, is_there: Callable[[int, Symbol], bool]) -> list[tuple[RunningSum, list[Contraction]]]:
    """The running sums of outer products that only contractions read, with all of these.

    `is_there` says whether a node's values at all points of a step are there at once: those that the sum is contracted with must be.
    """
    users = graph.users()
    sums = []
    for node in graph:
        running = _running_sum(graph, node)
        if running is None:
            continue
        contractions = [_contraction(graph, users, running, reader, slot, is_there) for reader, slot in users[node.id]]
        if all(contractions):
            sums.append((running, [each for several in contractions if several for each in several]))
    return sums


def _running_sum(graph: Graph, node: Node) -> RunningSum | None:
    """A node as a running sum; None if it is none."""
    if node.op != ops.Gather(0) or node.domain.condition is not TRUE:
        return None
    whole, place = (graph[edge.source] for edge in node.inputs)
    if not isinstance(whole.op, ops.CumSum) or whole.op.axis != 0 or not isinstance(place.op, ops.Eval):
        return None
    (terms,) = whole.inputs
    products = graph[terms.source]
    ranges = [(s, at) for s, at in terms.by_step(products.domain).items() if isinstance(at, Range)]
    if len(ranges) != 1 or ranges[0][1] != full_range(ranges[0][0]) or products.domain.condition is not TRUE:
        return None
    step = ranges[0][0]
    if place.op.value != step.expr or node.domain.steps != products.domain.steps:
        return None
    others_are_own = all(at == Point(s.expr) for s, at in terms.by_step(products.domain).items() if s != step)
    if not others_are_own or not all(e.is_own_point(graph[e.source].domain) for e in node.inputs):
        return None
    factors = _factors(graph, products)
    if factors is None:
        return None
    running = RunningSum(node, products, factors, step, whole.op.reverse)
    return running if running.of_one(0) and running.of_one(1) else None


def _factors(graph: Graph, products: Node) -> tuple[Factor, Factor] | None:
    """The factors of a product of two values with different dimensions, which may be transposed."""
    op, edges = products.op, products.inputs
    if isinstance(op, ops.Permute):
        inner = graph[edges[0].source]
        factors = _factors(graph, inner) if edges[0].is_own_point(inner.domain) and inner.domain.condition is TRUE else None
        if factors is None:
            return None
        first, second = (replace(f, axes=tuple(op.order.index(axis) for axis in f.axes)) for f in factors)
        return first, second
    if isinstance(op, ops.Binary) and op.fn == "mul":
        repeated = [_repeated(graph, edge) for edge in edges]
        return None if repeated[0] is None or repeated[1] is None else (repeated[0], repeated[1])
    if not isinstance(op, ops.Dot) or op.left_contract:
        return None
    places = ops.Dot((), (), op.left_batch, op.right_batch)
    left, right = (graph.edge_rank(edge) for edge in edges)
    batch, free = len(op.left_batch), len(places.left_free(left))
    left_axes = {axis: k for k, axis in enumerate((*op.left_batch, *places.left_free(left)))}
    right_axes = {axis: k for k, axis in enumerate(op.right_batch)}
    right_axes |= {axis: batch + free + k for k, axis in enumerate(places.right_free(right))}
    return Factor(edges[0], tuple(left_axes[k] for k in range(left))), Factor(
        edges[1], tuple(right_axes[k] for k in range(right))
    )


def _repeated(graph: Graph, edge: Edge) -> Factor | None:
    """What an edge's value repeats along new dimensions."""
    source = graph[edge.source]
    if not isinstance(source.op, ops.Broadcast):
        return None
    inner = read_at(source.inputs[0], source.domain, edge)
    return None if inner is None else Factor(inner, source.op.axes)


def _contraction(
    graph: Graph,
    users: dict[int, list[tuple[Node, int]]],
    running: RunningSum,
    reader: Node,
    slot: int,
    is_there: Callable[[int, Symbol], bool],
) -> list[Contraction] | None:
    """A reader of a running sum as contractions of it: one, or several sums of one product; None if it is none."""
    delay = _delay(reader.inputs[slot], running)
    if delay is None or reader.domain.condition.steps - {running.step} or running.step not in reader.domain:
        return None
    query = reader.inputs[1 - slot] if len(reader.inputs) == 2 else None
    if query is None or query.source == running.value.id:
        return None
    if isinstance(reader.op, ops.Dot):
        candidates = [_of_dot(graph, running, reader, reader.op, slot, query, delay)]
    elif isinstance(reader.op, ops.Binary) and reader.op.fn == "mul":
        candidates = [_of_sum(graph, running, reader, query, node, delay) for node, _ in users[reader.id]]
    else:
        return None
    contractions = [each for each in candidates if each is not None and _is_readable(graph, each.query, running.step, is_there)]
    return contractions if len(contractions) == len(candidates) else None


def _delay(edge: Edge, running: RunningSum) -> int | None:
    """By how much a read of a running sum moves along its step; None if it does anything else."""
    delay = 0
    for step, at in edge.by_step(running.value.domain).items():
        distance = at.expr - step.expr if isinstance(at, Point) else None
        if distance is None or not distance.is_constant or (step != running.step and distance.constant != 0):
            return None
        delay = distance.constant if step == running.step else delay
    return delay


def _is_readable(graph: Graph, query: Edge, step: Symbol, is_there: Callable[[int, Symbol], bool]) -> bool:
    """Whether a value can be read at all points of a step at once."""
    source = graph[query.source]
    if source.domain.condition is not TRUE or any(isinstance(at, Range) for at in query.index):
        return False
    at = query.by_step(source.domain).get(step)
    moves = any(step in other.steps for s, other in query.by_step(source.domain).items() if s != step)
    return not moves and (at is None or (at == Point(step.expr) and is_there(source.id, step)))


def _of_dot(graph: Graph, running: RunningSum, node: Node, op: ops.Dot, slot: int, query: Edge, delay: int) -> Contraction | None:
    contracts, batches = (op.left_contract, op.right_contract), (op.left_batch, op.right_batch)
    factor = _factor_of(running, contracts[slot])
    if factor is None or tuple(sorted(batches[slot])) != running.shared:
        return None
    axes = {other: axis for pair in (contracts, batches) for axis, other in zip(pair[slot], pair[1 - slot], strict=True)}
    rank = graph.edge_rank(query)
    in_query = tuple(axes.get(k, -1 - k) for k in range(rank))
    free = tuple(axis for axis in in_query if axis < 0)
    rest = tuple(axis for axis in range(running.value.outputs[0].rank) if axis not in contracts[slot] + batches[slot])
    results = (*batches[slot], *rest, *free) if slot == 0 else (*batches[slot], *free, *rest)
    return Contraction(node, query, in_query, factor, results, delay)


def _of_sum(graph: Graph, running: RunningSum, product: Node, other: Edge, node: Node, delay: int) -> Contraction | None:
    """The sum of a product with a value that is repeated along the dimensions that the sum keeps."""
    repeated = _repeated(graph, other)
    if not isinstance(node.op, ops.Reduce) or node.op.fn != "sum" or repeated is None:
        return None
    if node.domain != product.domain or not node.inputs[0].is_own_point(product.domain):
        return None
    factor = _factor_of(running, node.op.axes)
    if factor is None or set(repeated.axes) != {*running.of_one(factor), *running.shared}:
        return None
    results = tuple(axis for axis in range(running.value.outputs[0].rank) if axis not in node.op.axes)
    return Contraction(node, repeated.edge, repeated.axes, factor, results, delay)


def _factor_of(running: RunningSum, axes: tuple[int, ...]) -> int | None:
    """The factor that alone has these dimensions, and no others alone."""
    return next((slot for slot in range(2) if sorted(running.of_one(slot)) == sorted(axes)), None)

"""First-order linear recurrences: `a[t] = b[t] + c[t] * a[t ± 1]` becomes a `LinearScan`, or a `CumSum` where c is 1."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from tempo_core.errors import NonAffineError
from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.dependence import Nest, ancestors, cycle_sign, cycles, reached
from tempo_core.ir.graph import Edge, Graph, Node, constant_number, is_identity
from tempo_core.ir.ranges.lifted import everywhere
from tempo_core.ir.ranges.scans import at_all_points
from tempo_core.ir.types import is_float
from tempo_core.ir.writes import chain
from tempo_core.passes.base import operand_domains, read_at, take_over
from tempo_core.passes.clean.masks import equal_branches
from tempo_core.passes.clean.view import View
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.geometric import Geometric
from tempo_core.passes.ranges.linear_forms import linear_form, shift_of
from tempo_core.prices import pays_to_update
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Index, Point, identity
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.isl.relation import never


@dataclass(frozen=True)
class Scan:
    """A recurrence along `step` as a scan: its node is `coefficients` times the node's value at the neighbour, plus `terms`.

    Without coefficients it is a sum. `later` is a node that has the values one point later, and zero at the first point: the state of
    `tp.carry`.
    """

    node: Node
    step: Symbol
    reverse: bool
    coefficients: Edge | None
    terms: Edge
    later: Node | None = None
    factor: float | None = None  # the number that is the coefficient everywhere but at the first point

    def put(self, graph: Graph) -> None:
        """Make the node the element of the scan at its point."""
        target = self.node
        outer = everywhere(graph, target, frozenset({self.step}))
        place = Builder(graph, target, Domain(target.domain.steps))
        operands = [at_all_points(place, edge, self.step) for edge in (self.coefficients, self.terms) if edge is not None]
        op = ops.CumSum(0, self.reverse) if self.coefficients is None else ops.LinearScan(0, self.reverse)
        take_over(graph, target, place.add(ops.Gather(0), outer.add(op, *operands), place.add(ops.Eval(self.step.expr))))
        note(target.id, "computed for all points of {} by one scan: it is linear in its neighbour", self.step)


def lift_recurrences(graph: Graph, but: Collection[str] = ()) -> list[Scan]:
    """Rewrite, in place, each recurrence that is linear in its neighbour along one step, which is none of `but`, if a scan pays."""
    scans = []
    for step in (each for each in graph.order if each.name not in but):
        loops: dict[str, set[int]] = {"<": set(), ">": set()}  # the nodes of cycles that stay loops, by their direction
        for cycle in cycles(graph, step):
            scan = _scan_of(graph, cycle, step)
            sign = cycle_sign(graph, cycle, step)
            if scan is None or not _pays(graph, scan, cycle, loops.get(sign, set())):
                loops.setdefault(sign, set()).update(cycle.nodes)
            elif not _is_geometric(graph, scan, cycle):
                scan.put(graph)
                scans.append(scan)
    return scans


def _scan_of(graph: Graph, cycle: Nest, step: Symbol) -> Scan | None:
    """A recurrence that is alone on its cycle, inside of loops over the other steps, as a scan; None if there is none."""
    merges = [node for node in (graph[n] for n in cycle.nodes) if isinstance(node.op, ops.Merge)]
    if len(merges) != 1 or not is_float(merges[0].outputs[0].dtype):
        return None
    (merge,) = merges
    if merge.domain.condition is not TRUE or step not in merge.domain:
        return None
    branch = _recurrent_branch(merge, cycle)
    if branch is None or chain(graph, merge.inputs[branch], pays_to_update):
        return None
    return _scan(graph, merge, step, branch, cycle)


def _pays(graph: Graph, scan: Scan, cycle: Nest, loops: set[int]) -> bool:
    """Whether to compute all points of a recurrence at once.

    If only some of them are read, such as the last, a loop keeps one value, and a scan all. So a recurrence joins the loop over the step, in
    the same direction, that gives what each point adds.
    """
    if any(at is None or scan.step in at.steps or not isinstance(at, Point) for _, at in _reads(graph, scan, cycle)):
        return True
    addends = [edge.source for edge in (scan.coefficients, scan.terms) if edge is not None]
    return loops.isdisjoint(_in_order(graph, addends, scan.step))


def _reads(graph: Graph, scan: Scan, cycle: Nest) -> Iterator[tuple[int, Index | None]]:
    """The nodes of a cycle that others read, with the points of the step that each reads."""
    users = [user for n in cycle.nodes for user in graph.users()[n] if user[0].id not in cycle.nodes]
    for edge in (reader.inputs[slot] for reader, slot in users):
        yield edge.source, edge.by_step(graph[edge.source].domain).get(scan.step)


def _is_geometric(graph: Graph, scan: Scan, cycle: Nest) -> bool:
    """Whether powers of a constant factor say what a recurrence is, where it is read. They then take its place."""
    if scan.factor is None:
        return False
    of = Geometric(graph, scan.node, scan.step, scan.reverse, scan.factor, scan.terms)
    if not of.is_exact:
        return False
    is_read_last = all(read == (scan.node.id, Point(of.ends[1])) for read in _reads(graph, scan, cycle))
    return of.put_sum() if is_read_last else of.put_powers()


def _recurrent_branch(merge: Node, cycle: Nest) -> int | None:
    """The only branch on the cycle."""
    branches = {v.branch for v in cycle.vertices if v.node == merge.id}
    return branches.pop() if len(branches) == 1 else None


def _scan(graph: Graph, merge: Node, step: Symbol, branch: int, cycle: Nest) -> Scan | None:
    edge = merge.inputs[branch]
    domain = merge.domain
    value = graph[edge.source]
    if value.domain.steps != domain.steps or edge.condition.steps - {step}:
        return None
    if any(e.condition.steps - {step} for e in merge.inputs):
        return None  # conditions on other steps would have to stay branches
    delay = shift_of(edge, value, step)  # the branch reads its value at t + delay
    if delay is None:
        return None
    on_cycle = cycle.nodes
    target, addend = _completed(graph, merge, on_cycle) or (merge, None)
    build = Builder(graph, value, value.domain)
    linear = linear_form(graph, build, value, target, step, on_cycle)
    if linear is None:
        return None
    coefficient, term, distance = linear
    if coefficient is None or delay + distance not in (-1, 1):
        return None
    reverse = delay + distance == 1
    if not reverse and any(e is not None and comes_in_order(graph, e.source, step) for e in (coefficient, term, addend)):
        return None
    if term is None:
        term = build.add(ops.Broadcast(merge.outputs[0].shape, ()), literal(build, merge.outputs[0].dtype, 0.0))
    factors = read_at(coefficient, value.domain, edge)
    inside = read_at(term, value.domain, edge)
    if factors is None or inside is None or not _is_alone(graph, merge, step, branch, on_cycle):
        return None
    goes_on = _goes_on_everywhere(merge, branch, step, reverse)
    is_sum = constant_number(graph, factors.source) == 1 and goes_on
    if goes_on and distance == 0 and target is merge and _is_next(graph, merge, value, on_cycle):
        return Scan(value, step, reverse, None if is_sum else coefficient, term, merge)
    terms = _terms(graph, merge, branch, inside, addend)
    if is_sum:
        return Scan(target, step, reverse, None, terms, factor=1.0)
    place = Builder(graph, target, Domain(domain.steps))
    zero = place.add(ops.Broadcast(merge.outputs[0].shape, ()), literal(place, merge.outputs[0].dtype, 0.0))
    factor = constant_number(graph, factors.source) if goes_on else None
    return Scan(target, step, reverse, _merged(graph, merge, branch, factors, zero), terms, factor=factor)


def _is_next(graph: Graph, merge: Node, value: Node, on_cycle: set[int]) -> bool:
    """Whether a recurrence begins with zeros, and the value that it has at its next point is read too, as that of `tp.carry` is."""
    others = [edge for edge in merge.inputs if edge.source != value.id]
    is_zero = all(constant_number(graph, edge.source) == 0 for edge in others)
    return is_zero and value.domain == merge.domain and any(user.id not in on_cycle for user, _ in graph.users()[value.id])


def _is_alone(graph: Graph, merge: Node, step: Symbol, branch: int, on_cycle: set[int]) -> bool:
    """Whether no other branch needs points of the recurrence: the scan has all its points at once, and is after all that it reads."""
    if merge.id not in ancestors(graph, [edge.source for number, edge in enumerate(merge.inputs) if number != branch]):
        return True
    return all(inner.nodes <= on_cycle for inner in cycles(graph, step, joined=frozenset({merge.id})) if merge.id in inner.nodes)


def _completed(graph: Graph, merge: Node, on_cycle: set[int]) -> tuple[Node, Edge] | None:
    """The sum of a recurrence and of each point's own value, and the edge of that value, if nothing else reads the recurrence.

    `m[t] = c[t + 1] * a[t + 1]` and `a[t] = m[t] + x[t]`, as in gradients, is `a[t] = x[t] + c[t + 1] * a[t + 1]`.
    """
    readers = graph.users()[merge.id]
    if len(readers) != 1:
        return None
    node, slot = readers[0]
    if not isinstance(node.op, ops.Binary) or node.op.fn != "add" or node.domain != merge.domain:
        return None
    addend = node.inputs[1 - slot]
    if addend.source in on_cycle or node.id not in on_cycle or not is_identity(node.inputs[slot], merge, node.domain):
        return None
    return node, addend


def _terms(graph: Graph, merge: Node, branch: int, inside: Edge, addend: Edge | None) -> Edge:
    """What each point adds: `inside` where the recurrence goes on, the values of the other branches elsewhere, and `addend`."""
    others = [inside, *(e for number, e in enumerate(merge.inputs) if number != branch)]
    if addend is not None and all(constant_number(graph, e.source) == 0 for e in others):
        return addend
    merged = _merged(graph, merge, branch, inside, None)
    return merged if addend is None else Builder(graph, merge).add(ops.Binary("add"), merged, addend)


def _goes_on_everywhere(merge: Node, branch: int, step: Symbol, reverse: bool) -> bool:
    """Whether a branch of a recurrence along a step applies at all points but the first that the recurrence meets."""
    condition = operand_domains(merge, merge.domain)[branch].condition
    after_the_first = step.expr <= step.bound_expr - 2 if reverse else step.expr >= 1
    try:
        return never(merge.domain, after_the_first & ~condition)
    except NonAffineError:
        return False


def comes_in_order(graph: Graph, node_id: int, step: Symbol) -> bool:
    """Whether a value depends on stateful functions or streamed inputs, which give one timestep after the other.

    A loop uses such values as they come. A scan would have to keep them all first.
    """
    each_op = (graph[each].op for each in _in_order(graph, [node_id], step))
    return any(isinstance(op, ops.Udf) and op.stateful for op in each_op)


def _in_order(graph: Graph, nodes: Iterable[int], step: Symbol) -> set[int]:
    """What values depend on, point by point along a step."""

    def sources(each: int) -> Iterator[int]:
        for edge in graph[each].inputs:
            at = edge.by_step(graph[edge.source].domain).get(step)
            if isinstance(at, Point) and step in at.steps:
                yield edge.source

    return {each for each in reached(list(nodes), sources) if step in graph[each].domain}


def _merged(graph: Graph, merge: Node, branch: int, inside: Edge, elsewhere: Edge | None) -> Edge:
    """The values of a recurrence like `merge` with `inside` in its recurrent branch, and `elsewhere` (by default its own values) in the others."""
    edges = []
    for number, edge in enumerate(merge.inputs):
        if number == branch:
            edges.append(replace(inside, condition=edge.condition))
        else:
            edges.append(edge if elsewhere is None else replace(elsewhere, condition=edge.condition))
    node = graph.add(merge.op, edges, domain=merge.domain, name=merge.name, where=merge.where)
    joined = equal_branches(View(graph, node, Builder(graph, node)))
    if joined is not None and len(graph[joined.source].inputs) == 1:
        (edge,) = graph[joined.source].inputs
        return replace(edge, condition=TRUE)
    return Edge(node.id, identity(node.domain))

"""Vectorization: a step of many operations' domains becomes a leading spatial dimension of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core import prices
from tempo_core.ir import ops
from tempo_core.ir.dependence import cycles, direction_of, innermost_steps
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.ir.ops.work import CALL
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.boxes import in_boxes, steps_beside
from tempo_core.passes.batch.leading import Vectorizer, is_selected
from tempo_core.passes.batch.regions import regions
from tempo_core.passes.decisions import Ref, is_recording, note
from tempo_core.symbolic.domain import Domain, Point, Range, full_range
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.groups import Groups


@dataclass(frozen=True)
class Vectorize(Pass):
    """Run operations for all points of a step at once where no dependence between those points forbids it.

    Before: shapes are static. After: vectorized operations lack the step, and their values have a leading dimension for it.
    The steps are taken one after the other, and all other steps may stay loops. An operation is legal along step t unless a
    cycle of dependences leads from it to another point of t. Legal operations are vectorized in connected groups, if a read
    takes a whole step of the group (`x[0:T]`). A group that only feeds a loop over t stays in that loop. Where conditions mention t
    and another step (`i < t`), the points are filled up to boxes, if that pays (`passes/batch/boxes.py`). `but` names steps
    that stay loops, `masked` those whose branches are selected by masks, because `tile` divides them. With `exact`, boxes that
    recurrences are not defined in are not filled: `check_numerics` would see what is computed there.

    Rewrite: `y[t] = exp(x[t]); s = sum(y[0:T])` -> `y = exp(x[0:T]); s = sum(y)`
    """

    name: str = field(default="vectorize", init=False)
    but: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    exact: bool = False

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        legal_by_step: dict[Symbol, set[int]] = {}  # of the present graph
        for step in _in_layout_order(graph, legal_by_step):
            if step.name in self.but:
                _note_reads(step, _carried_reads(graph, step) if is_recording() else {})
            else:
                legal = legal_by_step[step] if step in legal_by_step else legal_nodes(graph, step)
                graph, legal, nodes, beside = _with_boxes(graph, step, legal, self.exact) or (
                    graph,
                    legal,
                    _worthwhile(graph, step, legal),
                    (),
                )
                if is_recording():
                    _explain(graph, step, legal, nodes, beside)
                if nodes:
                    graph = Vectorizer(graph, step, nodes, self.masked, beside).run()
                    legal_by_step.clear()
        return graph


def _worthwhile(graph: Graph, step: Symbol, legal: set[int]) -> set[int]:
    return _Connected(graph, step, legal - _smaller_than_operands(graph, step, legal)).worthwhile()


def _with_boxes(
    graph: Graph, step: Symbol, legal: set[int], exact: bool
) -> tuple[Graph, set[int], set[int], tuple[Symbol, ...]] | None:
    """The graph, the legal nodes, those worth vectorizing and the other steps, if conditions on the step and others are masks too.

    None if no more nodes are legal then, or if that does not pay.
    """
    beside = steps_beside(graph, step)
    more = legal_nodes(graph, step, beside=beside) if beside else legal
    nodes = _worthwhile(graph, step, more) if legal < more else set[int]()
    boxes = in_boxes(graph, step, nodes, beside, exact) if nodes - legal else None
    return None if boxes is None else (boxes, more, nodes, beside)


def _in_layout_order(graph: Graph, legal_by_step: dict[Symbol, set[int]]) -> list[Symbol]:
    """The order in which steps become dimensions: each becomes the first dimension of its values.

    Of the steps that are vectorized everywhere, the innermost comes first, so that values lie as inputs and results do. A step that stays a
    loop for some values comes later: those are kept with that step first. The nodes that may be vectorized are put in `legal_by_step`.
    """
    if len(graph.order) < 2:
        return list(graph.order)
    legal_by_step.update((step, legal_nodes(graph, step)) for step in graph.order)
    whole = [step for step in graph.order if not _stays_a_loop(graph, step, legal_by_step[step])]
    return [*reversed(whole), *(step for step in graph.order if step not in whole)]


def _stays_a_loop(graph: Graph, step: Symbol, legal: set[int]) -> bool:
    return any(step in node.domain and node.id not in legal for node in graph if not isinstance(node.op, (ops.Input, ops.Output)))


def legal_nodes(graph: Graph, step: Symbol, ragged_too: bool = False, beside: tuple[Symbol, ...] = ()) -> set[int]:
    """The nodes over `step` that are on no cycle through another point of the step, and whose op has a rule.

    With `ragged_too`, shapes may vary with the step, as they do before `pad`. Conditions may mention the step and one of `beside`.
    """
    fit = {n.id for n in graph if step in n.domain and _has_rule(n) and separable(graph, n, step, ragged_too, beside)}
    ragged = {n.id for n in graph if not all(t.is_static for t in n.outputs)}
    results = {e.source for n in graph if isinstance(n.op, ops.Output) for e in n.inputs}
    fit -= ragged & results  # such results are lists, not arrays
    bound: set[int] = set()  # on a cycle through other points of the step, or on a cycle with an unfit node
    for inner in cycles(graph, step):
        members = {n for n in inner.nodes if step in graph[n].domain}
        if not members <= fit or any(direction_of(graph, arc, step) != "=" for arc in inner.arcs):
            bound |= members
    legal = fit - bound
    while True:  # at all points of the step at once, a node may read more than at each: no cycle may lead through it
        # An elementwise selection computes all its branches at all points.
        selected = frozenset(n for n in legal if isinstance(graph[n].op, ops.Merge) and is_selected(graph[n], step))
        widened = {n: node for n in legal if (node := _with_whole_reads(graph, graph[n], step)) is not graph[n]}
        tied: set[int] = set()
        wide = graph.copy() if widened else graph
        for node in widened.values():
            wide.put(node)
        for inner in cycles(wide, step, joined=selected) if selected or widened else ():
            if not inner.nodes.isdisjoint(selected | widened.keys()):
                tied |= inner.nodes
        if not tied & legal:
            return legal
        legal -= tied


def _with_whole_reads(graph: Graph, node: Node, step: Symbol) -> Node:
    """A node as `Vectorizer` makes it read: all of another step, where the index along it depends on the step that is vectorized too."""
    inputs = tuple(_with_whole_steps(edge, graph[edge.source].domain, step) for edge in node.inputs)
    return node if inputs == node.inputs else replace(node, inputs=inputs)


def _with_whole_steps(edge: Edge, domain: Domain, step: Symbol) -> Edge:
    if not any(step in index.steps for index in edge.index):
        return edge
    pairs = zip(domain.steps, edge.index, strict=True)
    return replace(edge, index=tuple(full_range(s) if s != step and step in index.steps else index for s, index in pairs))


def separable(graph: Graph, node: Node, step: Symbol, ragged_too: bool = False, beside: tuple[Symbol, ...] = ()) -> bool:
    """Whether no shape varies with the step, and each condition that mentions it mentions only it, and steps of `beside`."""
    types = () if ragged_too else (*node.outputs, *graph.input_types(node))
    if any(step in size.steps for type in types for size in type.shape):
        return False
    condition = node.domain.condition
    if any(step in part.steps and part.steps - {step, *beside} for part in condition.parts):
        return False
    return not is_selected(node, step) or regions(node, step, beside) is not None


def _has_rule(node: Node) -> bool:
    op = node.op
    if isinstance(op, ops.Udf):
        return op.kind == "jax" and not op.stateful and bool(node.inputs)  # a function is mapped over its operands
    return not isinstance(op, (ops.Sink, ops.Output, ops.Input))


class _Connected:
    """The groups of connected legal nodes along a step, by representative, and what reads connect them with the other nodes."""

    def __init__(self, graph: Graph, step: Symbol, legal: set[int]):
        self.graph, self.step, self.legal, self.groups = graph, step, legal, Groups(legal)
        self.operands: dict[int, set[Key]] = {}  # what a group reads of a loop over the step, but for values that are kept anyway
        self.whole: dict[int, set[Key]] = {}  # values of which an op reads the whole step
        self.leaving: dict[int, set[tuple[int, Key]]] = {}  # (reader outside of the group, value)
        self.collected: set[int] = set()  # groups of which a result collects the whole step
        self.inside: set[int] = set()  # groups that a loop reads point by point
        self.outside: set[int] = set()  # groups of which a point is read before or after that loop
        self.reduced: set[int] = set()  # groups of which an op other than a `Permute` reads the whole step
        reads = [(reader, edge) for reader in graph for edge in reader.inputs if step in graph[edge.source].domain]
        for reader, edge in reads:
            if reader.id in legal and edge.source in legal:
                self.groups.join(edge.source, reader.id)
        stored: set[Key] = set()  # values of the loop that are kept for all its points anyway
        for reader, edge in reads:
            if edge.source in legal:
                self._add_read(reader, edge)
            elif reader.id in legal:
                self.operands.setdefault(self.groups.of(reader.id), set()).add((edge.source, edge.output))
            elif isinstance(edge.by_step(graph[edge.source].domain)[step], Range):
                stored.add((edge.source, edge.output))
        for values in self.operands.values():
            values -= stored

    def _add_read(self, reader: Node, edge: Edge) -> None:
        """Note a read of a legal node."""
        group, key = self.groups.of(edge.source), (edge.source, edge.output)
        index = edge.by_step(self.graph[edge.source].domain)[self.step]
        if reader.id not in self.legal:
            self.leaving.setdefault(group, set()).add((reader.id, key))
            if isinstance(index, Point):
                (self.inside if index.steps else self.outside).add(group)
        if not isinstance(index, Range) or self.step in index.steps:
            return
        if isinstance(reader.op, ops.Output):
            self.collected.add(group)
        else:
            self.whole.setdefault(group, set()).add(key)
            if not isinstance(reader.op, ops.Permute):
                self.reduced.add(group)

    def worthwhile(self) -> set[int]:
        """The nodes of the groups that are worth vectorizing.

        A group is worth vectorizing if an op reads a whole step of it, or if a result (`Output`) collects the step. Operands from a
        loop over the step would have to be kept until the loop ends. So a group with such operands is only worth it if an op reads a
        whole step of it, and either the group is faster at once, or the values that are read are together as large as the operands.
        Operands that are kept anyway do not count. If a run finds out where the step ends, a group with such operands stays in the
        loop that ends there: what is computed at once is computed up to the capacity.

        A group that only feeds a loop over the step is worth it too if it may be computed before that loop at little cost, or if a point of
        it is read outside of the loop too, as by the first iteration: it would be a loop of its own, with all its values kept.
        """
        fed, faster, ends = self.operands.keys(), self._faster_at_once(), self.step.bound_symbol in self.graph.ends()
        groups = {
            group
            for group, values in self.whole.items()
            if group not in fed
            or (not ends and (group in faster or _size(self.graph, values) >= _size(self.graph, self.operands[group])))
        }
        groups |= (self.collected | self.inside & self.outside) - fed
        if not _stays_a_loop(self.graph, self.step, self.legal):
            groups |= self._with_a_fixed_matrix()
        groups |= self._small_before_the_loop() - fed
        groups |= self._products_before_the_loop() - {group for group in fed if self.operands[group]}
        return {n for n in self.legal if self.groups.of(n) in groups}

    def price(self, node_id: int) -> str:
        """Why a node is not worth vectorizing of which something reads all points; "" if nothing does."""
        read, kept = (_size(self.graph, keys.get(self.groups.of(node_id), set())) for keys in (self.whole, self.operands))
        why = f", of which about {read} are read" if read < kept else ", and a run finds out how many points there are"
        return f"about {kept} elements of its operands would be kept for each point{why}" if read else ""

    def _faster_at_once(self) -> set[int]:
        """The groups that contract, scan or sort. A product of a matrix and a vector that both vary with the step counts only if its
        group is reduced: a sum of such products over the step becomes one product.
        """
        return {
            group
            for group, node in ((self.groups.of(n), self.graph[n]) for n in self.legal)
            if (node.op.cost_class in prices.LONG or isinstance(node.op, ops.Udf))
            and (group in self.reduced or not _is_of_each_point(self.graph, node, self.step))
        }

    def _with_a_fixed_matrix(self) -> set[int]:
        return {self.groups.of(n) for n in self.legal if _is_of_a_fixed_matrix(self.graph, self.graph[n], self.step)}

    def _small_before_the_loop(self) -> set[int]:
        """The groups with random draws or functions whose values are small, and are read only in the innermost loop over the step."""
        kept = self._read_innermost({self.groups.of(n) for n in self.legal if self.graph[n].op.cost_class == CALL})
        return {group for group, values in kept.items() if sum(self._elements(key) for key in values) <= prices.MOST_KEPT}

    def _products_before_the_loop(self) -> set[int]:
        """The groups with products by a fixed matrix that are read only in the innermost loop over the step.

        All these products are one product of matrices before the loop. What is kept for it is not much larger than what it reads.
        """
        kept, read = self._read_innermost(self._with_a_fixed_matrix()), dict[int, dict[Key, int]]()
        for n in self.legal if kept else ():
            for edge in self.graph[n].inputs:
                key = edge.source, edge.output
                along = self.step.bound_expr in self.graph[edge.source].outputs[edge.output].shape
                if edge.source not in self.legal and (along or self.step in self.graph[edge.source].domain):
                    read.setdefault(self.groups.of(n), {})[key] = self._elements(key) // (prices.NOMINAL if along else 1)
        return {
            group
            for group in kept.keys() & read.keys()
            if sum(map(self._elements, kept[group])) <= prices.TIMES_SMALLER * sum(read[group].values())
        }

    def _read_innermost(self, candidates: set[int]) -> dict[int, set[Key]]:
        """The values that other nodes read, for those of the candidates that are read only in the innermost loop over the step."""
        innermost = innermost_steps(self.graph) if candidates else {}
        return {
            group: {key for _, key in reads}
            for group, reads in self.leaving.items()
            if group in candidates and all(innermost.get(reader) == self.step for reader, _ in reads)
        }

    def _elements(self, key: Key) -> int:
        """The approximate number of elements of a value at all points of the step."""
        return prices.nominal(self.step.bound_expr * ops.product(self.graph[key[0]].outputs[key[1]].shape))


def _smaller_than_operands(graph: Graph, step: Symbol, legal: set[int]) -> set[int]:
    """Products of a fixed matrix and of what a loop over the step makes, if that would be kept for such products alone."""
    candidates: dict[int, int] = {}  # product -> the node that the loop makes
    for node in (graph[n] for n in legal):
        if _is_of_a_fixed_matrix(graph, node, step):
            operand, matrix = sorted(node.inputs, key=lambda edge: step not in edge.steps)
            keys = {(operand.source, operand.output)}, {(matrix.source, matrix.output)}, {(node.id, 0)}
            if operand.source not in legal and prices.pays_to_multiply_in_the_loop(*(_size(graph, key) for key in keys)):
                candidates[node.id] = operand.source
    readers = graph.users() if candidates else {}

    def is_kept(source: Node) -> bool:
        """Whether something else reads a range of a node's values, or leaves the loop with them."""
        reads = ((reader, reader.inputs[slot]) for reader, slot in readers[source.id])
        return any(
            isinstance(edge.by_step(source.domain)[step], Range) or (reader.id in legal and reader.id not in candidates)
            for reader, edge in reads
        )

    return {product for product, source in candidates.items() if step in graph[source].domain and not is_kept(graph[source])}


def _is_of_each_point(graph: Graph, node: Node, step: Symbol) -> bool:
    """Whether a node multiplies a matrix and a vector, or two vectors as columns and rows, that both vary with the step."""
    op = node.op
    if not isinstance(op, ops.Dot) or not all(step in edge.steps for edge in node.inputs):
        return False
    left, right = (graph.edge_rank(edge) for edge in node.inputs)
    return not op.left_contract or not op.left_free(left) or not op.right_free(right)


def _is_of_a_fixed_matrix(graph: Graph, node: Node, step: Symbol) -> bool:
    """Whether a node multiplies a value that varies with the step and a matrix that does not."""
    if not isinstance(node.op, ops.Dot) or sum(step in edge.steps for edge in node.inputs) != 1:
        return False
    fixed = next(edge for edge in node.inputs if step not in edge.steps)
    return graph.edge_rank(fixed) >= 2


def _size(graph: Graph, values: set[Key]) -> int:
    """The approximate number of elements of some values at one point."""
    return sum(prices.nominal(ops.product(graph[node_id].outputs[output].shape)) for node_id, output in values)


# -- reasons, for `program.explain()` -----------------------------------------------------------------------------------


def _explain(graph: Graph, step: Symbol, legal: set[int], nodes: set[int], beside: tuple[Symbol, ...]) -> None:
    """Note for each node over a step why it becomes one array along the step, or why it does not; and what makes the step a loop."""
    carried, smaller = _carried_reads(graph, step), _smaller_than_operands(graph, step, legal)
    connected = _Connected(graph, step, legal - smaller)
    _note_reads(step, carried)
    for node in graph:
        if step not in node.domain or isinstance(node.op, (ops.Input, ops.Output)):
            continue
        if node.id not in nodes and node.id not in carried and not _has_rule(node):
            note(step.name, "cannot run at once: {} is a function on the host, or has a state", Ref(node.id))
        elif node.id not in legal and not separable(graph, node, step, beside=beside):
            why = "cannot run at once: the shape or the conditions of {} depend on {} and on another step"
            note(step.name, why, Ref(node.id), step)
        if isinstance(node.op, ops.Sink):
            continue
        if node.id in nodes:
            reader = _whole_reader(graph, node.id, step)
            if reader is None:
                note(node.id, "computed for all points of {} at once, with the values that it is connected with", step)
            else:
                note(node.id, "computed for all points of {} at once: {} reads them all", step, Ref(reader))
        elif node.id in legal:
            is_smaller = "smaller than its operand, which would be kept for all points"
            why = is_smaller if node.id in smaller else connected.price(node.id)
            note(node.id, "stays in the loop over {}: {}", step, why or "it only feeds or follows that loop, point by point")
            if why and any(key[0] == node.id for key in connected.whole.get(connected.groups.of(node.id), ())):
                note(step.name, "by its price, {} does not leave it: {}", Ref(node.id), why)
        elif node.id in carried:
            note(node.id, "stays in the loop over {}: it is on a cycle, in which {} reads {}", step, *carried[node.id])
        elif not _has_rule(node):
            note(node.id, "stays in the loop over {}: functions on the host, and those with state, run point by point", step)
        elif not separable(graph, node, step, beside=beside):
            note(node.id, "stays in the loop over {}: its shape or its conditions depend on {} and on another step", step, step)
        else:
            note(node.id, "stays in the loop over {}, with values on its cycle that cannot leave it", step)


def _note_reads(step: Symbol, carried: Mapping[int, tuple[Ref, Ref]]) -> None:
    for reader, read in dict.fromkeys(carried.values()):
        note(step.name, "cannot run at once: {} reads {}", reader, read)


def _whole_reader(graph: Graph, node_id: int, step: Symbol) -> int | None:
    """A node that reads a range of a node's values along a step."""
    reads = ((reader.id, edge) for reader in graph for edge in reader.inputs if edge.source == node_id)
    domain = graph[node_id].domain
    return next((reader for reader, edge in reads if isinstance(edge.by_step(domain).get(step), Range)), None)


def _carried_reads(graph: Graph, step: Symbol) -> dict[int, tuple[Ref, Ref]]:
    """For each node on a cycle through other points of a step: the reader and the read on the cycle that leave the point."""
    carried: dict[int, tuple[Ref, Ref]] = {}
    for inner in cycles(graph, step):
        arcs = [arc for arc in inner.arcs if direction_of(graph, arc, step) != "="]
        if arcs:
            edge = graph[arcs[0].reader.node].inputs[arcs[0].slot]
            read = Ref(edge.source, f"[{', '.join(map(str, edge.index))}]")
            carried |= dict.fromkeys(inner.nodes, (Ref(arcs[0].reader.node), read))
    return carried

"""Vectorization: a step of many operations' domains becomes a leading spatial dimension of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import direction, direction_of, innermost_steps, loop_nest
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.leading import Vectorizer, is_selected
from tempo_core.passes.batch.regions import regions
from tempo_core.passes.decisions import Ref, is_recording, note
from tempo_core.prices import (
    FASTER_AT_ONCE,
    MANY_OPERATIONS,
    MOST_KEPT,
    NOMINAL,
    nominal,
    pays_to_multiply_before_the_loop,
    pays_to_multiply_in_the_loop,
)
from tempo_core.symbolic.domain import Domain, Range, full_range
from tempo_core.symbolic.expr import Symbol
from tempo_core.symbolic.groups import Groups


@dataclass(frozen=True)
class Vectorize(Pass):
    """Run operations for all points of a step at once where no dependence between those points forbids it.

    Before: shapes are static. After: vectorized operations lack the step, and their values have a leading dimension for it.
    The steps are taken one after the other, and all other steps may stay loops. An operation is legal along step t unless a
    cycle of dependences leads from it to another point of t. Legal operations are vectorized in connected groups, if a read
    takes a whole step of the group (`x[0:T]`). A group that only feeds a loop over t stays in that loop. `but` names steps
    that stay loops, `masked` those whose branches are selected by masks, because `tile` divides them.

    Rewrite: `y[t] = exp(x[t]); s = sum(y[0:T])` -> `y = exp(x[0:T]); s = sum(y)`
    """

    name: str = field(default="vectorize", init=False)
    but: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        legal_by_step: dict[Symbol, set[int]] = {}  # of the present graph
        for step in _in_layout_order(graph, legal_by_step):
            if step.name not in self.but:
                legal = legal_by_step[step] if step in legal_by_step else legal_nodes(graph, step)
                legal = legal - _smaller_than_operands(graph, step, legal)
                nodes = _worthwhile(graph, step, legal)
                if is_recording():
                    _explain(graph, step, legal, nodes)
                if nodes:
                    graph = Vectorizer(graph, step, nodes, self.masked).run()
                    legal_by_step.clear()
        return graph


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
    fit = {n.id for n in graph if step in n.domain and _has_rule(n) and _separable(graph, n, step, ragged_too, beside)}
    ragged = {n.id for n in graph if not all(t.is_static for t in n.outputs)}
    results = {e.source for n in graph if isinstance(n.op, ops.Output) for e in n.inputs}
    fit -= ragged & results  # such results are lists, not arrays
    others = [s for s in graph.order if s != step]
    bound: set[int] = set()  # on a cycle through other points of the step, or on a cycle with an unfit node
    for inner in loop_nest(graph, others).nests():
        if inner.cyclic:
            members = {v.node for v in inner.vertices if step in graph[v.node].domain}
            if not members <= fit or any(direction_of(graph, arc, step) != "=" for arc in inner.arcs):
                bound |= members
    legal = fit - bound
    while True:  # at all points of the step at once, a node may read more than at each: no cycle may lead through it
        # An elementwise selection computes all its branches at all points.
        selected = frozenset(n for n in legal if isinstance(graph[n].op, ops.Merge) and is_selected(graph[n], step))
        widened = {n: wide for n in legal if (wide := _with_whole_reads(graph, graph[n], step)) is not graph[n]}
        tied: set[int] = set()
        for inner in loop_nest(_replaced(graph, widened), others, selected).nests() if selected or widened else ():
            members = {v.node for v in inner.vertices}
            if inner.cyclic and not members.isdisjoint(selected | widened.keys()):
                tied |= members
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


def _replaced(graph: Graph, nodes: Mapping[int, Node]) -> Graph:
    """The graph, or a copy of it with these nodes."""
    if not nodes:
        return graph
    graph = graph.copy()
    for node in nodes.values():
        graph.put(node)
    return graph


def _separable(graph: Graph, node: Node, step: Symbol, ragged_too: bool = False, beside: tuple[Symbol, ...] = ()) -> bool:
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


def _worthwhile(graph: Graph, step: Symbol, legal: set[int]) -> set[int]:
    """The legal nodes in groups that are worth vectorizing.

    A group is a set of connected legal nodes. It is worth vectorizing if some read takes a whole step of it. A group with
    operands from a loop over the step needs a second reason, because all those operands would have to be kept until the loop
    ends. There are two such reasons: the group contracts, scans or sorts, which is faster at once
    (but not products of a matrix and a vector that both vary with the step, if only results collect what comes of them); or no value read from the
    group is smaller than its operands. Operands that are kept anyway do not count, because something else reads a range of them.
    For a group with operands from a loop, a result (`Output`) that collects the step does not count as a read.

    A group that only feeds a loop is worth it too, if it draws random numbers or calls functions for the innermost loop, needs
    nothing from that loop, and all its values together are small: they are computed before the loop. So is one with products with a
    matrix that stays the same, if no node has to be in a loop over the step.
    """
    groups: Groups[int] = Groups(legal)
    whole: set[Key] = set()  # values of which some read takes the whole step
    collected: set[int] = set()  # nodes whose values are collected as results
    looped_reads: set[tuple[int, Key]] = set()  # (reader, value that a loop over the step makes)
    stored: set[Key] = set()  # values of the loop that are kept for all its points anyway
    reduced: set[int] = set()  # nodes of whose values more than a result reads the whole step
    for reader in graph:
        for edge in reader.inputs:
            source = graph[edge.source]
            if step not in source.domain:
                continue
            index = edge.index[source.domain.steps.index(step)]
            if source.id not in legal and (
                isinstance(index, Range) if reader.id not in legal else _crosses(graph, reader, edge, step)
            ):
                stored.add((edge.source, edge.output))
            if source.id in legal and reader.id in legal and step in reader.domain:
                groups.join(source.id, reader.id)
            elif reader.id in legal and step in reader.domain:
                looped_reads.add((reader.id, (edge.source, edge.output)))
            if source.id in legal and isinstance(index, Range) and step not in index.steps:
                if isinstance(reader.op, ops.Output):
                    collected.add(source.id)
                else:
                    whole.add((source.id, edge.output))
                if not isinstance(reader.op, (ops.Output, ops.Permute)):
                    reduced.add(source.id)
    products = {groups.of(n) for n in reduced}  # a sum of products over the step becomes one product
    heavy = {
        groups.of(n)
        for n in legal
        if isinstance(graph[n].op, FASTER_AT_ONCE) and (groups.of(n) in products or not _is_of_each_point(graph, graph[n], step))
    }
    operands: dict[int, set[Key]] = {}  # by group
    for reader_id, key in looped_reads:
        operands.setdefault(groups.of(reader_id), set()).add(key)
    read: dict[int, set[Key]] = {}  # by group
    for key in whole:
        read.setdefault(groups.of(key[0]), set()).add(key)
    worthwhile = {
        group
        for group in read
        if group not in operands or group in heavy or _size(graph, read[group]) >= _size(graph, operands[group] - stored)
    }
    worthwhile |= {groups.of(n) for n in collected} - operands.keys()
    if not any(step in n.domain and n.id not in legal for n in graph if not isinstance(n.op, (ops.Input, ops.Output))):
        worthwhile |= {groups.of(n) for n in legal if _is_of_a_fixed_matrix(graph, graph[n], step)}
    worthwhile |= _before_the_loop(graph, step, legal, groups) - operands.keys()
    worthwhile |= _products_before_the_loop(graph, step, legal, groups) - {
        group for group in operands if operands[group] - stored
    }
    return {n for n in legal if groups.of(n) in worthwhile}


def _smaller_than_operands(graph: Graph, step: Symbol, legal: set[int]) -> set[int]:
    """Products of a fixed matrix and of what a loop over the step makes, if that would be kept for such products alone."""
    candidates: dict[int, int] = {}  # product -> the node that the loop makes
    for node in (graph[n] for n in legal):
        if _is_of_a_fixed_matrix(graph, node, step):
            operand, matrix = sorted(node.inputs, key=lambda edge: step not in edge.steps)
            keys = {(operand.source, operand.output)}, {(matrix.source, matrix.output)}, {(node.id, 0)}
            if operand.source not in legal and pays_to_multiply_in_the_loop(*(_size(graph, key) for key in keys)):
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


def _crosses(graph: Graph, reader: Node, edge: Edge, step: Symbol) -> bool:
    """Whether a read is of an earlier iteration of a loop around the loop over `step`, which has ended by then."""
    outer = graph.order[: graph.order.index(step)]
    return any(direction(graph, reader, edge, s) in ("<", ">") for s in outer)


def _products_before_the_loop(graph: Graph, step: Symbol, legal: set[int], groups: Groups[int]) -> set[int]:
    """The groups with products of what varies with the step and of matrices that do not vary with it, read only in the innermost loop
    over `step`: all their products together are one product of matrices. What is kept for it is not much larger than what is read.
    """
    candidates = {groups.of(n) for n in legal if _is_of_a_fixed_matrix(graph, graph[n], step)}
    innermost = innermost_steps(graph) if candidates else {}
    kept: dict[int, set[Key]] = {}
    read: dict[int, set[Key]] = {}
    for reader in graph:
        for edge in reader.inputs:
            source, key = graph[edge.source], (edge.source, edge.output)
            inside = edge.source in legal and step in source.domain
            if inside and reader.id not in legal:
                kept.setdefault(groups.of(edge.source), set()).add(key)
                if innermost.get(reader.id) != step:
                    candidates.discard(groups.of(edge.source))
            elif reader.id in legal and not inside and (step in source.domain or _lies_along(graph, key, step)):
                read.setdefault(groups.of(reader.id), set()).add(key)
    return {
        group
        for group in candidates & kept.keys() & read.keys()
        if pays_to_multiply_before_the_loop(
            sum(_elements(graph, key, step) for key in kept[group]),
            sum(_elements(graph, key, step) // (NOMINAL if _lies_along(graph, key, step) else 1) for key in read[group]),
        )
    }


def _lies_along(graph: Graph, key: Key, step: Symbol) -> bool:
    """Whether a value has a dimension for a step."""
    return step.bound_expr in graph[key[0]].outputs[key[1]].shape


def _is_of_a_fixed_matrix(graph: Graph, node: Node, step: Symbol) -> bool:
    """Whether a node multiplies a value that varies with the step and a matrix that does not."""
    if not isinstance(node.op, ops.Dot) or sum(step in edge.steps for edge in node.inputs) != 1:
        return False
    fixed = next(edge for edge in node.inputs if step not in edge.steps)
    return graph.edge_rank(fixed) >= 2


def _before_the_loop(graph: Graph, step: Symbol, legal: set[int], groups: Groups[int]) -> set[int]:
    """The groups with random draws or functions whose values are small, and are read only in the innermost loop over `step`."""
    candidates = {groups.of(n) for n in legal if isinstance(graph[n].op, MANY_OPERATIONS)}
    innermost = innermost_steps(graph) if candidates else {}
    kept: dict[int, set[Key]] = {}
    for reader in graph:
        for edge in reader.inputs:
            if edge.source in legal and reader.id not in legal and step in graph[edge.source].domain:
                kept.setdefault(groups.of(edge.source), set()).add((edge.source, edge.output))
                if innermost.get(reader.id) != step:
                    candidates.discard(groups.of(edge.source))
    return {
        group for group in candidates if group in kept and sum(_elements(graph, key, step) for key in kept[group]) <= MOST_KEPT
    }


def _elements(graph: Graph, key: Key, step: Symbol) -> int:
    """The approximate number of elements of a value at all points of a step."""
    return nominal(step.bound_expr * ops.product(graph[key[0]].outputs[key[1]].shape))


def _size(graph: Graph, values: set[Key]) -> int:
    """The approximate number of elements of some values at one point."""
    total = 0
    for node_id, output in values:
        total += nominal(ops.product(graph[node_id].outputs[output].shape))
    return total


# -- reasons, for `program.explain()` -----------------------------------------------------------------------------------


def _explain(graph: Graph, step: Symbol, legal: set[int], nodes: set[int]) -> None:
    """Note for each node over a step why it becomes one array along the step, or why it does not."""
    carried = _carried_reads(graph, step)
    for node in graph:
        if step not in node.domain or isinstance(node.op, (ops.Input, ops.Output, ops.Sink)):
            continue
        if node.id in nodes:
            reader = _whole_reader(graph, node.id, step)
            if reader is None:
                note(node.id, "computed for all points of {} at once, with the values that it is connected with", step)
            else:
                note(node.id, "computed for all points of {} at once: {} reads them all", step, Ref(reader))
        elif node.id in legal:
            note(node.id, "stays in the loop over {}: it only feeds or follows that loop, point by point", step)
        elif node.id in carried:
            note(node.id, "stays in the loop over {}: it is on a cycle, in which {} reads {}", step, *carried[node.id])
        elif not _has_rule(node):
            note(node.id, "stays in the loop over {}: functions on the host, and those with state, run point by point", step)
        elif not _separable(graph, node, step):
            note(node.id, "stays in the loop over {}: its shape or its conditions depend on {} and on another step", step, step)
        else:
            note(node.id, "stays in the loop over {}, with values on its cycle that cannot leave it", step)


def _whole_reader(graph: Graph, node_id: int, step: Symbol) -> int | None:
    """A node that reads a range of a node's values along a step."""
    for reader in graph:
        for edge in reader.inputs:
            if edge.source == node_id and isinstance(edge.by_step(graph[node_id].domain).get(step), Range):
                return reader.id
    return None


def _carried_reads(graph: Graph, step: Symbol) -> dict[int, tuple[Ref, Ref]]:
    """For each node on a cycle through other points of a step: the reader and the read on the cycle that leave the point."""
    carried: dict[int, tuple[Ref, Ref]] = {}
    for inner in loop_nest(graph, [s for s in graph.order if s != step]).nests():
        arcs = [arc for arc in inner.arcs if inner.cyclic and direction_of(graph, arc, step) != "="]
        if arcs:
            edge = graph[arcs[0].reader.node].inputs[arcs[0].slot]
            read = Ref(edge.source, f"[{', '.join(map(str, edge.index))}]")
            carried |= dict.fromkeys({v.node for v in inner.vertices}, (Ref(arcs[0].reader.node), read))
    return carried

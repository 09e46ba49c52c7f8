"""Vectorization: a step of many operations' domains becomes a leading spatial dimension of their values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, positions, repeated, zeros_outside
from tempo_core.ir.dependence import direction, direction_of, innermost_steps, loop_nest
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.passes.base import Pass, condition_without, operand_domains, remove_dead
from tempo_core.passes.batch.batching import batched, evaluated, grid
from tempo_core.passes.batch.borders import chosen
from tempo_core.passes.batch.neighbours import neighbours
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
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, is_full_range, is_own_point
from tempo_core.symbolic.expr import Expr, Symbol
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
                    graph = _Vectorizer(graph, step, nodes, self.masked).run()
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


def legal_nodes(graph: Graph, step: Symbol, ragged_too: bool = False) -> set[int]:
    """The nodes over `step` that are on no cycle through another point of the step, and whose op has a rule.

    With `ragged_too`, shapes may vary with the step, as they do before `pad`.
    """
    fit = {n.id for n in graph if step in n.domain and _has_rule(n) and _separable(graph, n, step, ragged_too)}
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
        selected = frozenset(n for n in legal if isinstance(graph[n].op, ops.Merge) and _is_selected(graph[n], step))
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
    """A node as `_Vectorizer` makes it read: all of another step, where the index along it depends on the step that is vectorized too."""
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


def _is_selected(merge: Node, step: Symbol) -> bool:
    """Whether a vectorized `Merge` becomes an elementwise selection: the conditions of its branches depend on the step."""
    return any(step in e.condition.steps for e in merge.inputs)


def _separable(graph: Graph, node: Node, step: Symbol, ragged_too: bool) -> bool:
    """Whether no shape varies with the step, and each condition mentions either only the step or not the step."""
    types = () if ragged_too else (*node.outputs, *graph.input_types(node))
    if any(step in size.steps for type in types for size in type.shape):
        return False
    condition = node.domain.condition
    if any(step in p.steps and len(p.steps) > 1 for p in condition.parts):
        return False
    return not _is_selected(node, step) or regions(node, step) is not None


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
        elif not _separable(graph, node, step, False):
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


class _Vectorizer:
    """Rewrites some nodes of a graph, which lose a step, and every edge that touches them."""

    def __init__(self, graph: Graph, step: Symbol, nodes: set[int], masked: tuple[str, ...] = ()):
        self.graph, self.step, self.nodes, self.masked = graph, step, nodes, masked
        self.size = step.bound_expr
        self.old = graph.copy()  # rewriting edges needs the original types and domains

    def run(self) -> Graph:
        for node in self.old:  # types first: a vectorized value has one more leading dimension
            if node.id in self.nodes:
                outputs = tuple(replace(t, shape=(self.size, *t.shape)) for t in node.outputs)
                self.graph.put(replace(node, domain=self._domain(node), outputs=outputs))
        for node in self.old:
            if node.id in self.nodes:
                self._vectorize(node)
            elif any(e.source in self.nodes for e in node.inputs):
                self._read_vectorized(node)
        return remove_dead(self.graph)

    def _domain(self, node: Node) -> Domain:
        steps = tuple(s for s in node.domain.steps if s != self.step)
        return Domain(steps, condition_without(node.domain.condition, self.step))

    # -- readers that stay in the loop --------------------------------------------------------------------------------

    def _read_vectorized(self, node: Node) -> None:
        """A reader in the loop picks its point or range from the new leading dimension of a vectorized source."""
        builders = self._builders(node, node.domain)
        inputs = []
        for edge, build in zip(node.inputs, builders, strict=True):
            inputs.append(self._picked(edge, build) if edge.source in self.nodes else edge)
        self.graph.put(replace(self.graph[node.id], inputs=tuple(inputs)))

    def _picked(self, edge: Edge, build: Builder) -> Edge:
        source = self.old[edge.source]
        position = source.domain.steps.index(self.step)
        index = edge.index[position]
        rest = replace(edge, index=edge.index[:position] + edge.index[position + 1 :], condition=TRUE)
        ranges = [isinstance(i, Range) for i in rest.index]
        axis = sum(ranges)  # the vectorized dimension stands after the dimensions of the remaining ranges
        if isinstance(index, Point):
            value = build.add(ops.Gather(axis), rest, build.add(ops.Eval(index.expr)))
        else:
            value = rest if is_full_range(index, self.step) else self._span(rest, index, axis, build)
            value = self._moved(value, axis, sum(ranges[:position]), build)
        return replace(value, condition=edge.condition)

    def _span(self, value: Edge, index: Range, axis: int, build: Builder) -> Edge:
        """The positions of a range along `axis`. A padded range has zeros past its end."""
        if not index.steps and index.size is None:
            return build.add(ops.Slice(axis, index.start, index.stop, index.stride), value)
        steps = positions(build, index.start, index.length, index.stride)
        span = build.add(ops.Gather(axis), value, steps)
        if index.size is None:
            return span
        stop = build.add(ops.Broadcast((index.length,), ()), build.add(ops.Eval(index.stop)))
        return zeros_outside(build, span, build.add(ops.Compare("lt"), steps, stop), (axis,))

    def _moved(self, value: Edge, axis: int, target: int, build: Builder) -> Edge:
        """`value` with dimension `axis` at position `target`."""
        if axis == target:
            return value
        rank = build.type(value).rank
        order = [k for k in range(rank) if k != axis]
        order.insert(target, axis)
        domain = build.domain or build.like.domain
        if domain.condition is TRUE:  # without the steps along which the value is the same: a product takes it as it is
            domain = Domain(tuple(s for s in domain.steps if s in value.steps))
        return build.add(ops.Permute(tuple(order)), value, domain=domain)

    # -- vectorized nodes ---------------------------------------------------------------------------------------------

    def _vectorize(self, node: Node) -> None:
        domain = self._domain(node)
        build = Builder(self.graph, node, domain)
        if isinstance(node.op, ops.Merge):
            value = self._merged(node, build)
        else:
            operands = [self._leading(edge, build) for edge in node.inputs]
            types = self.old.input_types(node)
            value = batched(node.op, operands, types, node.outputs, self.step, build)
        if value is None:  # rewritten in place
            return
        if value.source < self.old.next_id:  # a selection with one branch is that branch, which may not be rewritten yet
            value = build.add(ops.Identity(), value)
        final = self.graph[value.source]
        self.graph.put(replace(final, id=node.id, name=node.name, where=node.where, domain=domain))

    def _leading(self, edge: Edge, build: Builder) -> tuple[Edge, bool]:
        """The value of an edge for all points of the step, and whether it has a leading dimension for them."""
        source = self.old[edge.source]
        edge = replace(edge, condition=TRUE)
        moving = [k for k, i in enumerate(edge.index) if self.step in i.steps]
        vectorized = edge.source in self.nodes
        if not moving:
            return (self._picked(edge, build) if vectorized else edge), False
        place = source.domain.steps.index(self.step) if self.step in source.domain else -1
        if moving == [place] and is_own_point(edge.index[place], self.step):
            return self._identity_read(edge, place, vectorized, build), True
        return self._gathered(edge, source, moving, vectorized, build), True

    def _identity_read(self, edge: Edge, place: int, vectorized: bool, build: Builder) -> Edge:
        """x[t] for all t: the leading dimension of a vectorized source, or a slice 0:T of a source in the loop."""
        before = sum(isinstance(i, Range) for i in edge.index[:place])
        after = sum(isinstance(i, Range) for i in edge.index[place + 1 :])
        if vectorized:
            value, axis = replace(edge, index=edge.index[:place] + edge.index[place + 1 :]), before + after
        else:
            value, axis = replace(edge, index=(*edge.index[:place], full_range(self.step), *edge.index[place + 1 :])), before
        return self._moved(value, axis, 0, build)

    def _gathered(self, edge: Edge, source: Node, moving: list[int], vectorized: bool, build: Builder) -> Edge:
        """Any other read: whole ranges of the source along every index that moves with the step, then slices or gathers for all points."""
        whole: list[Index] = []
        for k, (step, index) in enumerate(zip(source.domain.steps, edge.index, strict=True)):
            whole.append(full_range(step) if k in moving else index)
        base = replace(edge, index=tuple(whole))
        value = self._picked(base, build) if vectorized else base  # leading dimensions: one for each range, in source order
        axes = [sum(isinstance(i, Range) for i in whole[:k]) for k in moving]
        index = edge.index[moving[0]]
        if len(moving) == 1 and isinstance(index, Point):
            elements = neighbours(value, axes[0], index.expr, self.step, build)
            if elements is not None:
                return self._moved(elements, axes[0], 0, build)
        result, removed = value, 0
        for done, (k, axis) in enumerate(zip(moving, axes, strict=True)):
            result = self._take_moving(result, axis - removed, edge.index[k], done > 0, build)
            removed += isinstance(edge.index[k], Point)
        return result

    def _take_moving(self, value: Edge, axis: int, index: Index, leading: bool, build: Builder) -> Edge:
        """Replace dimension `axis` by the elements that `index` reads at each point; the points become the leading dimension.

        With `leading`, `value` has that dimension already, and `axis` is counted without it.
        """
        if isinstance(index, Point):
            steps = evaluated(index.expr, self.step, build)
        else:
            steps = grid(index.start, index.length, index.stride, self.step, build)
        if leading:
            elements = build.add(ops.Gather(axis + 1, batch=1), value, steps)
        else:
            elements = self._moved(build.add(ops.Gather(axis), value, steps), axis, 0, build)
        if isinstance(index, Point) or index.size is None:
            return elements
        stops = build.add(ops.Broadcast((self.size, index.length), (0,)), evaluated(index.stop, self.step, build))
        return zeros_outside(build, elements, build.add(ops.Compare("lt"), steps, stops), (0, axis + 1))

    def _merged(self, node: Node, build: Builder) -> Edge | None:
        """A vectorized `Merge`: None if it is still a `Merge`, of wider values; else the edge of an elementwise selection.

        Branches whose conditions vary with the step become one selection for each region of the other steps.
        """
        shape = (self.size, *node.outputs[0].shape)
        domain = self._domain(node)
        if not _is_selected(node, self.step):
            reads = zip(node.inputs, self._builders(node, domain), strict=True)
            self._wide_merge(node, [(edge.condition, self._wide(edge, shape, inner)) for edge, inner in reads])
            return None
        selections: list[tuple[Bool, Edge]] = []
        for region in regions(node, self.step) or ():
            inside = replace(build, domain=replace(domain, condition=domain.condition & region.condition))
            *first, (last, _) = region.branches
            value = self._wide(node.inputs[last], shape, inside)
            for number, condition in reversed(first):
                value = self._selected(condition, self._wide(node.inputs[number], shape, inside), value, inside)
            selections.append((region.condition, value))
        if selections[0][0] is TRUE:
            return selections[0][1]
        self._wide_merge(node, selections)
        return None

    def _selected(self, condition: Bool, value: Edge, otherwise: Edge, build: Builder) -> Edge:
        """`value` at the points of the step at which a condition holds, `otherwise` elsewhere."""
        result = None if self.step.name in self.masked else chosen(condition, self.step, value, otherwise, build)
        if result is not None:
            return result
        test = build.add(ops.Broadcast(build.type(value).shape, (0,)), evaluated(condition, self.step, build))
        return build.add(ops.Where(), test, value, otherwise)

    def _wide_merge(self, node: Node, branches: list[tuple[Bool, Edge]]) -> None:
        """The node as a `Merge` of these values, which have the leading dimension, each under its condition."""
        type = replace(node.outputs[0], shape=(self.size, *node.outputs[0].shape))
        edges = tuple(replace(edge, condition=condition) for condition, edge in branches)
        self.graph.put(replace(self.graph[node.id], op=ops.Merge(type), inputs=edges))

    def _builders(self, node: Node, domain: Domain) -> list[Builder]:
        """For each operand of a node, the builder of its read over `domain`."""
        return [Builder(self.graph, node, d) for d in operand_domains(node, domain)]

    def _wide(self, edge: Edge, shape: tuple[Expr, ...], build: Builder) -> Edge:
        """The value of an edge with the leading dimension; a value that does not vary with the step is repeated along it."""
        value, leads = self._leading(edge, build)
        return value if leads else repeated(value, shape, build)

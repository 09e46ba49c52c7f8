"""A step of some nodes becomes the leading dimension of their values: the nodes anew, and every edge that touches them."""

from __future__ import annotations

import functools
from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, positions, repeated, zeros_outside
from tempo_core.ir.dependence import loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import condition_without, operand_domains, remove_dead
from tempo_core.passes.batch.batching import batched, evaluated, grid
from tempo_core.passes.batch.borders import chosen
from tempo_core.passes.batch.neighbours import neighbours
from tempo_core.passes.batch.regions import regions
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, is_full_range, is_own_point
from tempo_core.symbolic.expr import Expr, Symbol


def is_selected(merge: Node, step: Symbol) -> bool:
    """Whether a vectorized `Merge` becomes an elementwise selection: the conditions of its branches depend on the step."""
    return any(step in e.condition.steps for e in merge.inputs)


class Vectorizer:
    """Rewrites some nodes of a graph, which lose a step, and every edge that touches them.

    Conditions may mention the step and one of `beside`: such parts of a node's own condition are dropped, those of branches are masks.
    `innermost` values lie so that the elements of all points for one position of a range follow each other: XLA adds vectors of points.
    """

    def __init__(
        self,
        graph: Graph,
        step: Symbol,
        nodes: set[int],
        masked: tuple[str, ...] = (),
        beside: tuple[Symbol, ...] = (),
        innermost: bool = False,
    ):
        self.graph, self.step, self.nodes, self.masked, self.beside = graph, step, nodes, masked, beside
        self.innermost = innermost
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
        reads = zip(node.inputs, self._builders(node, node.domain), strict=True)
        inputs = tuple(self._picked(edge, build) if edge.source in self.nodes else edge for edge, build in reads)
        self.graph.put(replace(self.graph[node.id], inputs=inputs))

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
        is_before = build.add(ops.Compare("lt"), steps, build.filled((index.length,), index.stop))
        return zeros_outside(build, span, is_before, (axis,))

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
            value = batched(node.op, operands, types, node.outputs, self.step, build, self.innermost)
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
        steps = enumerate(source.domain.steps)
        whole: list[Index] = [full_range(step) if k in moving else edge.index[k] for k, step in steps]
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
            steps = self._vector(index.expr, build)
            if leading:
                return build.add(ops.Gather(axis + 1, batch=1), value, steps)
            return self._moved(build.add(ops.Gather(axis), value, steps), axis, 0, build)
        last = self.innermost and not leading and build.type(value).rank == 1
        steps = grid(index.start, index.length, index.stride, self.step, build, axis=int(last))
        if leading:
            elements = build.add(ops.Gather(axis + 1, batch=1), value, steps)
        else:
            elements = build.add(ops.Gather(axis), value, steps)
            elements = elements if last else self._moved(elements, axis, 0, build)
        if index.size is not None:
            stops = build.add(ops.Broadcast(build.type(steps).shape, (int(last),)), evaluated(index.stop, self.step, build))
            is_before = build.add(ops.Compare("lt"), steps, stops)
            elements = zeros_outside(build, elements, is_before, (0, 1) if last else (0, axis + 1))
        return self._moved(elements, 1, 0, build) if last else elements

    def _merged(self, node: Node, build: Builder) -> Edge | None:
        """A vectorized `Merge`: None if it is still a `Merge`, of wider values; else the edge of an elementwise selection.

        Branches whose conditions vary with the step become one selection for each region of the other steps.
        """
        shape = (self.size, *node.outputs[0].shape)
        domain = self._domain(node)
        if not is_selected(node, self.step):
            reads = zip(node.inputs, self._builders(node, domain), strict=True)
            self._wide_merge(node, [(edge.condition, self._wide(edge, shape, inner)) for edge, inner in reads])
            return None
        selections: list[tuple[Bool, Edge]] = []
        for region in regions(node, self.step, self.beside) or ():
            inside = replace(build, domain=replace(domain, condition=domain.condition & region.condition))
            *first, (last, _) = region.branches
            value = self._wide(node.inputs[last], shape, inside)
            for number, condition in reversed(first):
                value = self._selected(condition, self._wide(node.inputs[number], shape, inside), value, inside)
            selections.append((region.condition, value))
        if selections[0][0] is TRUE and node.id not in self._recurrent:
            return selections[0][1]
        self._wide_merge(node, selections)
        return None

    @functools.cached_property
    def _recurrent(self) -> set[int]:
        """The nodes on cycles of dependences, where a selection needs all its branches: each cycle keeps a `Merge`."""
        selected = frozenset(
            n for n in self.nodes if isinstance(self.old[n].op, ops.Merge) and is_selected(self.old[n], self.step)
        )
        nest = loop_nest(self.old, [s for s in self.old.order if s != self.step], selected)
        return {n for inner in nest.nests() if inner.step is not None for n in inner.nodes}

    def _selected(self, condition: Bool, value: Edge, otherwise: Edge, build: Builder) -> Edge:
        """`value` at the points of the step at which a condition holds, `otherwise` elsewhere."""
        result = None if self.step.name in self.masked else chosen(condition, self.step, value, otherwise, build)
        if result is not None:
            return result
        test = build.add(ops.Broadcast(build.type(value).shape, (0,)), self._vector(condition, build))
        return build.add(ops.Where(), test, value, otherwise)

    def _vector(self, value: Expr | Bool, build: Builder) -> Edge:
        """An expression or condition at all points of the step. It varies with the steps that it mentions, not with all of the node's."""
        domain = build.domain or build.like.domain
        steps = tuple(s for s in domain.steps if s in value.symbols)
        inside = conjunction(*(part for part in domain.condition.parts if part.steps <= set(steps)))
        return evaluated(value, self.step, replace(build, domain=Domain(steps, inside)))

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

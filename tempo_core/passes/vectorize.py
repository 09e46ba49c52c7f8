"""Vectorization: a step of many operations' domains becomes a leading spatial dimension of their values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.dependence import direction_of, loop_nest
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Builder, Pass, condition_without, operand_domains, positions, remove_dead, zeros_outside
from tempo_core.passes.batching import batched, evaluated, grid
from tempo_core.symbolic.condition import TRUE
from tempo_core.symbolic.domain import Domain, Index, Point, Range, full_range, is_full_range
from tempo_core.symbolic.expr import Expr, Symbol


@dataclass(frozen=True)
class Vectorize(Pass):
    """Run operations for all points of a step at once where no dependence between those points forbids it.

    Before: shapes are static. For each step t (all other steps may stay loops), an operation may be vectorized unless it is
    left on a cycle that reads another point of t. Of those, what is read or written as a whole (`x[0:T]`) is vectorized,
    with all it is connected to; what only feeds a loop over t stays in it. `only` limits the steps, `but` excludes some.

    Rewrite: `y[t] = exp(x[t]); s = sum(y[0:T])` -> `y = exp(x[0:T]); s = sum(y)`
    """

    name: str = field(default="vectorize", init=False)
    but: tuple[str, ...] = ()

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        for step in graph.order:
            if step.name not in self.but:
                chosen = _worthwhile(graph, step, _legal(graph, step))
                if chosen:
                    graph = _Vectorizer(graph, step, chosen).run()
        return graph


def _legal(graph: Graph, step: Symbol) -> set[int]:
    """Nodes over `step` that no cycle through another point of it binds."""
    fit = {n.id for n in graph if step in n.domain and _has_rule(n) and _separable(graph, n, step)}
    ragged = {n.id for n in graph if not all(t.is_static for t in n.outputs)}
    fit -= ragged & {
        e.source for n in graph if isinstance(n.op, ops.Output) for e in n.inputs
    }  # their results are lists, not arrays
    others = [s for s in graph.order if s != step]
    bound: set[int] = set()  # on a cycle through other points of the step, or on one with something that cannot be vectorized
    for inner in loop_nest(graph, others).nests():
        if inner.cyclic:
            members = {v.node for v in inner.vertices if step in graph[v.node].domain}
            if not members <= fit or any(direction_of(graph, arc, step) != "=" for arc in inner.arcs):
                bound |= members
    legal = fit - bound
    while True:  # branches that are selected elementwise need each other's points: there must be no cycle through all of them
        selected = frozenset(n for n in legal if isinstance(graph[n].op, ops.Merge) and _is_selected(graph[n], step))
        tied: set[int] = set()
        for inner in loop_nest(graph, others, selected).nests() if selected else ():
            members = {v.node for v in inner.vertices}
            if inner.cyclic and members & selected:
                tied |= members
        if not tied & legal:
            return legal
        legal -= tied


def _is_selected(merge: Node, step: Symbol) -> bool:
    """Whether vectorization makes an elementwise choice of a `Merge`: its branches depend on the step."""
    return any(step in e.condition.steps for e in merge.inputs)


def _separable(graph: Graph, node: Node, step: Symbol) -> bool:
    """Shapes do not vary with the step, and conditions speak of it alone or not at all."""
    types = (*node.outputs, *graph.input_types(node))
    if any(step in size.steps for type in types for size in type.shape):
        return False
    condition = node.domain.condition
    if any(step in p.steps and len(p.steps) > 1 for p in condition.parts):
        return False
    psi = frozenset().union(*(e.condition.steps for e in node.inputs))
    return step not in psi or psi == {step}


def _has_rule(node: Node) -> bool:
    op = node.op
    if isinstance(op, ops.Udf):
        return op.kind == "jax" and not op.stateful and bool(node.inputs)  # without operands there is nothing to map it over
    return not isinstance(op, (ops.Sink, ops.Output, ops.Input))


def _worthwhile(graph: Graph, step: Symbol, legal: set[int]) -> set[int]:
    """Connected groups of legal nodes of which some read takes the whole step.

    A group that reads what a loop over the step makes needs a better reason: its operands would all have to be kept, to
    compute at the end what can be computed as the loop goes. It is one that the group contracts, scans or sorts, which gains
    from doing so at once, or that what is read of it is no smaller than its operands. That results (`Output`) are
    collected is no such reason.
    """
    parent = {n: n for n in legal}

    def find(n: int) -> int:
        while parent[n] != n:
            parent[n] = parent[parent[n]]
            n = parent[n]
        return n

    whole: set[tuple[int, int]] = set()
    collected: set[int] = set()
    kept: set[tuple[int, tuple[int, int]]] = set()  # (reader, what it reads of a loop)
    for reader in graph:
        for edge in reader.inputs:
            source = graph[edge.source]
            if step not in source.domain:
                continue
            index = edge.index[source.domain.steps.index(step)]
            if source.id in legal and reader.id in legal and step in reader.domain:
                parent[find(source.id)] = find(reader.id)
            elif reader.id in legal and step in reader.domain:
                kept.add((reader.id, (edge.source, edge.output)))
            if source.id in legal and isinstance(index, Range) and step not in index.steps:
                if isinstance(reader.op, ops.Output):
                    collected.add(source.id)
                else:
                    whole.add((source.id, edge.output))
    looped = {find(reader) for reader, _ in kept}
    heavy = {find(n) for n in legal if isinstance(graph[n].op, HEAVY)}
    operands: dict[int, set[tuple[int, int]]] = {}
    for reader_id, key in kept:
        operands.setdefault(find(reader_id), set()).add(key)
    read: dict[int, set[tuple[int, int]]] = {}
    for key in whole:
        read.setdefault(find(key[0]), set()).add(key)
    roots = {
        root for root in read if root not in looped or root in heavy or _size(graph, read[root]) >= _size(graph, operands[root])
    }
    roots |= {find(n) for n in collected} - looped
    return {n for n in legal if find(n) in roots}


HEAVY = (ops.Dot, ops.Conv, ops.CumSum, ops.CumMax, ops.LinearScan, ops.DiscountedSum, ops.Argsort, ops.Udf)
_NOMINAL = 16  # every bound, where sizes are compared


def _size(graph: Graph, values: set[tuple[int, int]]) -> int:
    """The elements of some values at one point, roughly."""
    total = 0
    for node_id, output in values:
        size = ops.product(graph[node_id].outputs[output].shape)
        total += size.evaluate(dict.fromkeys(size.symbols, _NOMINAL))
    return total


class _Vectorizer:
    """Rewrites the chosen nodes of a graph, and every edge that touches them."""

    def __init__(self, graph: Graph, step: Symbol, chosen: set[int]):
        self.graph, self.step, self.chosen = graph, step, chosen
        self.size = step.bound_expr
        self.old = graph.copy()  # edges are rewritten with the types and domains from before

    def run(self) -> Graph:
        for node in self.old:  # types first: a vectorized value has one more leading dimension
            if node.id in self.chosen:
                outputs = tuple(replace(t, shape=(self.size, *t.shape)) for t in node.outputs)
                self.graph.put(replace(node, domain=self._domain(node), outputs=outputs))
        for node in self.old:
            if node.id in self.chosen:
                self._vectorize(node)
            elif any(e.source in self.chosen for e in node.inputs):
                self._read_vectorized(node)
        return remove_dead(self.graph)

    def _domain(self, node: Node) -> Domain:
        steps = tuple(s for s in node.domain.steps if s != self.step)
        return Domain(steps, condition_without(node.domain.condition, self.step))

    # -- readers that stay in the loop --------------------------------------------------------------------------------

    def _read_vectorized(self, node: Node) -> None:
        """A reader that is not vectorized picks its point or range from the source's new leading dimension."""
        builders = self._builders(node, node.domain)
        inputs = []
        for edge, build in zip(node.inputs, builders, strict=True):
            inputs.append(self._picked(edge, build) if edge.source in self.chosen else edge)
        self.graph.put(replace(self.graph[node.id], inputs=tuple(inputs)))

    def _picked(self, edge: Edge, build: Builder) -> Edge:
        source = self.old[edge.source]
        position = source.domain.steps.index(self.step)
        index = edge.index[position]
        rest = replace(edge, index=edge.index[:position] + edge.index[position + 1 :], condition=TRUE)
        outer = [isinstance(i, Range) for i in rest.index]
        axis = sum(outer)  # the vectorized dimension stands after the dimensions of the remaining ranges
        if isinstance(index, Point):
            value = build.add(ops.Gather(axis), rest, build.add(ops.Eval(index.expr)))
        else:
            value = rest if is_full_range(index, self.step) else self._span(rest, index, axis, build)
            value = self._moved(value, axis, sum(outer[:position]), build)
        return replace(value, condition=edge.condition)

    def _span(self, value: Edge, index: Range, axis: int, build: Builder) -> Edge:
        """The positions of a range along `axis`, zeros past its end where it is padded."""
        if not index.steps and index.size is None:
            return build.add(ops.Slice(axis, index.start, index.stop, index.stride), value)
        wanted = positions(build, index.start, index.length, index.stride)
        taken = build.add(ops.Gather(axis), value, wanted)
        if index.size is None:
            return taken
        stop = build.add(ops.Broadcast((index.length,), ()), build.add(ops.Eval(index.stop)))
        return zeros_outside(build, taken, build.add(ops.Compare("lt"), wanted, stop), (axis,))

    def _moved(self, value: Edge, axis: int, target: int, build: Builder) -> Edge:
        if axis == target:
            return value
        rank = build.type(value).rank
        order = [k for k in range(rank) if k != axis]
        order.insert(target, axis)
        return build.add(ops.Permute(tuple(order)), value)

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
        final = self.graph[value.source]
        self.graph.put(replace(final, id=node.id, name=node.name, where=node.where, domain=domain))

    def _leading(self, edge: Edge, build: Builder) -> tuple[Edge, bool]:
        """What an edge delivers for all points of the step: (value, whether it has a leading dimension for them)."""
        source = self.old[edge.source]
        edge = replace(edge, condition=TRUE)
        moving = [k for k, i in enumerate(edge.index) if self.step in i.steps]
        vectorized = edge.source in self.chosen
        if not moving:
            return (self._picked(edge, build) if vectorized else edge), False
        own = source.domain.steps.index(self.step) if self.step in source.domain else -1
        if moving == [own] and isinstance(edge.index[own], Point) and edge.index[own].steps == {self.step}:
            point = edge.index[own]
            assert isinstance(point, Point)
            if point.expr.single_atom == self.step:
                return self._identity_read(edge, own, vectorized, build), True
        return self._gathered(edge, source, moving, vectorized, build), True

    def _identity_read(self, edge: Edge, own: int, vectorized: bool, build: Builder) -> Edge:
        """x[t] for all t: the source's leading dimension, or a slice 0:T of a source that stays in the loop."""
        before = sum(isinstance(i, Range) for i in edge.index[:own])
        after = sum(isinstance(i, Range) for i in edge.index[own + 1 :])
        if vectorized:
            value, axis = replace(edge, index=edge.index[:own] + edge.index[own + 1 :]), before + after
        else:
            value, axis = replace(edge, index=(*edge.index[:own], full_range(self.step), *edge.index[own + 1 :])), before
        return self._moved(value, axis, 0, build)

    def _gathered(self, edge: Edge, source: Node, moving: list[int], vectorized: bool, build: Builder) -> Edge:
        """The general read: whole ranges of the source along every moving index, then gathers for all points at once."""
        whole: list[Index] = []
        for k, (step, index) in enumerate(zip(source.domain.steps, edge.index, strict=True)):
            whole.append(full_range(step) if k in moving else index)
        base = replace(edge, index=tuple(whole))
        value = self._picked(base, build) if vectorized else base  # leading dimensions: one for each range, in source order
        axes = [sum(isinstance(i, Range) for i in whole[:k]) for k in moving]
        result, removed = value, 0
        for number, (k, axis) in enumerate(zip(moving, axes, strict=True)):
            result = self._take_moving(result, axis - removed, edge.index[k], number > 0, build)
            removed += isinstance(edge.index[k], Point)
        return result

    def _take_moving(self, value: Edge, axis: int, index: Index, leading: bool, build: Builder) -> Edge:
        """Replace `axis` (counted without the leading dimension) by what `index` reads at each point; points lead."""
        if isinstance(index, Point):
            wanted = evaluated(index.expr, self.step, build)
        else:
            wanted = grid(index.start, index.length, index.stride, self.step, build)
        if leading:
            taken = build.add(ops.Gather(axis + 1, batch=1), value, wanted)
        else:
            taken = self._moved(build.add(ops.Gather(axis), value, wanted), axis, 0, build)
        if isinstance(index, Point) or index.size is None:
            return taken
        stops = build.add(ops.Broadcast((self.size, index.length), (0,)), evaluated(index.stop, self.step, build))
        return zeros_outside(build, taken, build.add(ops.Compare("lt"), wanted, stops), (0, axis + 1))

    def _merged(self, node: Node, build: Builder) -> Edge | None:
        """Branches whose conditions vary with the step are selected elementwise (their edge); else the node stays a `Merge`."""
        type = node.outputs[0]
        shape = (self.size, *type.shape)
        wide = []
        for edge, inner in zip(node.inputs, self._builders(node, self._domain(node)), strict=True):
            read, has = self._leading(edge, inner)
            wide.append(self._widened(read, has, shape, inner))
        if not _is_selected(node, self.step):
            branches = [replace(edge, condition=old.condition) for edge, old in zip(wide, node.inputs, strict=True)]
            merge = self.graph[node.id]
            self.graph.put(replace(merge, op=ops.Merge(replace(type, shape=shape)), inputs=tuple(branches)))
            return None
        result = wide[-1]
        for edge, old in reversed(list(zip(wide[:-1], node.inputs[:-1], strict=True))):
            test = evaluated(old.condition, self.step, build)
            result = build.add(ops.Where(), build.add(ops.Broadcast(shape, (0,)), test), edge, result)
        return result

    def _builders(self, node: Node, domain: Domain) -> list[Builder]:
        """For each operand, what builds its read over `domain`."""
        return [Builder(self.graph, node, d) for d in operand_domains(node, domain)]

    def _widened(self, edge: Edge, has: bool, shape: tuple[Expr, ...], build: Builder) -> Edge:
        return edge if has else build.add(ops.Broadcast(shape, tuple(range(1, len(shape)))), edge)

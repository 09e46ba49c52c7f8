"""Tiling: a dimension that is reduced becomes a new step over tiles of one size, with an accumulator between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tempo_core.ir import ops
from tempo_core.ir.axes import Source, reduced, source_of, tiled
from tempo_core.ir.builder import NEUTRAL, Builder, accumulated, constant_op, literal, positions, zeros_outside
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.passes.base import Pass, remove_dead
from tempo_core.symbolic.condition import TRUE, Bool, Comparison
from tempo_core.symbolic.domain import Domain, Index, Point, Range, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, FloorDivide, Maximum, Minimum, Modulo, Symbol, maximum, minimum
from tempo_core.symbolic.proof import provably_nonnegative

ADDED_UP = (ops.Reduce, ops.Dot)  # their results for two tiles, put together, are those for both


@dataclass(frozen=True)
class Tile(Pass):
    """Reduce tile by tile: no whole dimension is held in memory, and nothing past the true length of a padded one is computed.

    Before: shapes are static. For each step t of `sizes`, reductions and contractions are tiled if they go over a dimension
    whose size contains t's bound T. The operations that only they read are tiled with them. This ends at reads of ranges of
    steps, which then read a part of the range, and at values that are needed whole, from which tiles are gathered.
    After: the graph has new steps, whose bounds `Graph.derived` gives. Floats are summed in another order.

    Rewrite (tiles of 64): `y = sum(exp(x[0:T]))` ->
    `p[n] = sum(exp(x[64n : min(64n + 64, T) to 64])); a[n] = p[n] + (a[n - 1] if n >= 1 else 0); y = a[(T - 1) // 64]`
    """

    sizes: tuple[tuple[str, int], ...] = ()
    name: str = field(default="tile", init=False)
    effect: ClassVar[str] = "computed tile by tile"

    def apply(self, graph: Graph) -> Graph:
        graph = graph.copy()
        for step in graph.order:
            size = dict(self.sizes).get(step.name)
            if size is not None:
                for dimension in dimensions(graph, step, size):
                    graph = Tiling(graph, step, dimension, size).run()
        return graph


def dimensions(graph: Graph, step: Symbol, size: int = 1, products_only: bool = False) -> list[Expr]:
    """The sizes of reduced (or contracted) dimensions that contain a step's bound, and may not fit in a tile."""
    sizes: dict[Expr, None] = {}
    for node in graph:
        if not isinstance(node.op, ops.Dot if products_only else ADDED_UP):
            continue
        shape = graph.edge_type(node.inputs[0]).shape
        for axis, *_ in reduced(node.op):
            whole = shape[axis]
            has_bound = step.bound_symbol in whole.symbols and not whole.steps and _is_affine(whole)
            if has_bound and not provably_nonnegative(size - whole):
                sizes[whole] = None
    return list(sizes)


def _is_affine(expression: Expr) -> bool:
    for monomial, _ in expression.terms:
        if sum(power for _, power in monomial) > 1:
            return False
        for atom, _ in monomial:
            if isinstance(atom, (FloorDivide, Modulo)) and not (atom.denominator.is_constant and _is_affine(atom.numerator)):
                return False
            if isinstance(atom, (Minimum, Maximum)) and not all(map(_is_affine, atom.args)):
                return False
    return True


def _reduction(node: Node) -> str:
    """The function of a reduction. Contractions sum."""
    return node.op.fn if isinstance(node.op, ops.Reduce) else "sum"


@dataclass(frozen=True)
class Seed:
    """A reduction over the dimension, with the dimension's axis in each operand and its true length at each point."""

    node: Node
    axes: tuple[int, ...]
    length: Expr | None  # None: the whole dimension
    masked: bool  # operands are neutral past `length`, and so past the dimension's end


@dataclass(frozen=True)
class Tiled:
    """`operands`: for each operand, the dimension that is tiled with the result's, or None. `op`: the op that computes a tile."""

    operands: Source
    op: ops.Op


Chosen = Mapping[int, tuple[int, Tiled]]
"""Nodes that are computed in tiles: the dimension, and the rule."""


class Tiling:
    """Tiles one dimension, which its size `whole` identifies."""

    divides = False  # whether `size` divides the dimension: then no tile has a part past its end
    pays = True
    deciding: Bool = TRUE  # the numbers of bounds that decided whether it pays

    def __init__(self, graph: Graph, step: Symbol, whole: Expr, size: int):
        self.graph, self.whole, self.size = graph, whole, size
        self.step = graph.fresh_step(f"{step.name}_tile")
        self.users = graph.users()
        self.tiles: dict[int, int] = {}  # node -> its tiled version
        self.steps: dict[int, tuple[Symbol, ...]] = {}  # of tiles that have more steps than the nodes that they are of

    @property
    def start(self) -> Expr:
        """The first element of a tile."""
        return self.step.expr * self.size

    def run(self) -> Graph:
        seeds, chosen = self.choose()
        return self.rewrite(seeds, chosen) if seeds else self.graph

    def choose(self) -> tuple[list[Seed], Chosen]:
        """The reductions that are worth it, and what is computed in tiles for them."""
        seeds = list(self._seeds())
        chosen = self._chosen(seeds)
        seeds = [s for s in seeds if self._is_worthwhile(s, chosen)]
        return seeds, self._chosen(seeds)

    def rewrite(self, seeds: list[Seed], chosen: Chosen) -> Graph:
        """The graph with tiles in place of what was chosen."""
        count = (self.whole + (self.size - 1)) // self.size
        self.graph = self.graph.with_step(self.step, count if provably_nonnegative(self.whole - 1) else maximum(count, 1))
        conditions = self._conditions(seeds, chosen)
        for node_id in [n for n in self.graph.nodes if n in chosen]:
            self._node(node_id, chosen, conditions)
        for seed in seeds:
            self._reduce(seed, chosen)
        return remove_dead(self.graph)

    # -- what is tiled ------------------------------------------------------------------------------------------------

    def _seeds(self) -> Iterator[Seed]:
        for node in self.graph:
            types = self.graph.input_types(node)
            for axes in reduced(node.op) if isinstance(node.op, ADDED_UP) else ():
                if all(type.shape[axis] == self.whole for type, axis in zip(types, axes, strict=True)):
                    fn = _reduction(node)
                    lengths = [self._length(edge, axis, fn) for edge, axis in zip(node.inputs, axes, strict=True)]
                    length = next((n for n in lengths if n is not None), None)
                    yield Seed(node, axes, length, length is not None and None not in lengths)
                    break

    def _length(self, edge: Edge, axis: int, fn: str) -> Expr | None:
        """The true length of an operand along `axis`, if a mask has put neutral elements past it. Else None."""
        node = self._at(edge)
        if node is None or not isinstance(node.op, ops.Where) or node.op.axis != axis or not self._is_neutral(node.inputs[2], fn):
            return None
        return node.op.length

    def _is_neutral(self, edge: Edge, fn: str) -> bool:
        """Whether an edge reads nothing but the neutral element of a reduction."""
        source = self.graph[edge.source]
        while isinstance(source.op, (ops.Broadcast, ops.Reshape)):
            source = self.graph[source.inputs[0].source]
        return isinstance(source.op, ops.Constant) and source.op == constant_op(source.op.dtype, NEUTRAL[fn])

    def _at(self, edge: Edge) -> Node | None:
        """The node that an edge reads, if it is read at the reader's own point."""
        source = self.graph[edge.source]
        return source if edge.is_own_point(source.domain) else None

    def _rule(self, node: Node, axis: int) -> Tiled | None:
        if isinstance(node.op, ops.Iota):
            return Tiled((), node.op)
        source = source_of(self.graph, node, axis)
        return None if source is None else Tiled(source, tiled(node.op, axis, Expr.of(self.size)))

    def _requests(self, node: Node, axes: Source) -> Iterator[tuple[int, int]]:
        """The pairs (source, dimension) of which a tiled reader needs tiles. Dimensions that are ranges of steps are not among them."""
        for edge, axis in zip(node.inputs, axes, strict=True):
            if axis is not None:
                source_axis = axis - sum(isinstance(i, Range) for i in edge.index)
                if source_axis >= 0:
                    yield edge.source, source_axis

    def _chosen(self, seeds: list[Seed]) -> Chosen:
        """The nodes that are computed in tiles, each with its tiled dimension and its rule.

        All readers of such a node must need tiles of one and the same dimension. Counters, and values that are repeated along
        the dimension, cost nothing; they may also stay whole for other readers.
        """
        banned: set[int] = set()
        while True:
            rules: dict[int, tuple[int, Tiled]] = {}
            reads: dict[int, int] = {}  # by how many operands of tiled readers a node is read
            waiting = [request for seed in seeds for request in self._requests(seed.node, seed.axes)]
            refused: set[int] = set()
            while waiting:
                source, axis = waiting.pop()
                reads[source] = reads.get(source, 0) + 1
                if source in banned or source in refused:
                    continue
                if source in rules:
                    if rules[source][0] != axis:
                        refused.add(source)
                    continue
                node = self.graph[source]
                rule = self._rule(node, axis) if len(node.outputs) == 1 else None
                if rule is None or any(source == seed.node.id for seed in seeds):
                    refused.add(source)
                    continue
                rules[source] = axis, rule
                waiting.extend(self._requests(node, rule.operands))
            refused |= {
                source
                for source, (_, rule) in rules.items()
                if any(axis is not None for axis in rule.operands) and reads[source] != len(self.users[source])
            }
            if not refused - banned:
                return {k: v for k, v in rules.items() if k not in banned}
            banned |= refused

    def _is_worthwhile(self, seed: Seed, chosen: Chosen) -> bool:
        """Whether an operand is read as a range of steps, or computed in tiles. Operands that are there as a whole gain nothing."""
        for edge, axis in zip(seed.node.inputs, seed.axes, strict=True):
            ranges = sum(isinstance(i, Range) for i in edge.index)
            choice = chosen.get(edge.source)
            if axis < ranges or (choice is not None and any(a is not None for a in choice[1].operands)):
                return True
        return False

    def _conditions(self, seeds: list[Seed], chosen: Chosen) -> dict[int, Bool]:
        """For each chosen node, where its tiles are needed: at tile numbers below the true length, if all its readers agree on one."""
        lengths: dict[int, set[Expr | None]] = {}
        waiting = [(seed.node, seed.length) for seed in seeds]
        while waiting:
            reader, length = waiting.pop()
            for edge in reader.inputs:
                if edge.source in chosen:
                    node = self.graph[edge.source]
                    applies = (
                        length is not None and length.steps <= set(node.domain.steps) and not self._moves(edge, length.steps)
                    )
                    here = length if applies else None
                    if here not in lengths.setdefault(node.id, set()):
                        lengths[node.id].add(here)
                        waiting.append((node, here))
        return {n: self._needed(next(iter(ends))) if len(ends) == 1 else TRUE for n, ends in lengths.items()}

    def _moves(self, edge: Edge, steps: frozenset[Symbol]) -> bool:
        """Whether an edge reads, along one of `steps`, another point than the reader's."""
        by_step = edge.by_step(self.graph[edge.source].domain)
        return any(s in steps and not is_own_point(index, s) for s, index in by_step.items())

    def _needed(self, length: Expr | None) -> Bool:
        return TRUE if length is None else length - 1 - self.start >= 0

    # -- rewriting ----------------------------------------------------------------------------------------------------

    def _domain(self, node: Node, condition: Bool) -> Domain:
        steps = step_order((*self.steps.get(node.id, node.domain.steps), self.step), self.graph.order)
        return Domain(steps, node.domain.condition & condition)

    def _node(self, node_id: int, chosen: Chosen, conditions: Mapping[int, Bool]) -> int:
        """The tiled version of a node."""
        if node_id in self.tiles:
            return self.tiles[node_id]
        node = self.graph[node_id]
        _, rule = chosen[node_id]
        build = Builder(self.graph, node, self._domain(node, conditions[node_id]))
        if isinstance(node.op, ops.Iota):
            tile = positions(build, self.start, Expr.of(self.size))
        else:
            for edge in node.inputs:
                if edge.source in chosen:
                    self._node(edge.source, chosen, conditions)
            operands = [self._operand(e, a, chosen, build) for e, a in zip(node.inputs, rule.operands, strict=True)]
            tile = build.add(rule.op, *operands)
        self.tiles[node_id] = tile.source
        return tile.source

    def _operand(self, edge: Edge, axis: int | None, chosen: Chosen, build: Builder) -> Edge:
        """The n-th tile of an operand's dimension `axis`."""
        if axis is None:
            return edge
        ranges = [k for k, i in enumerate(edge.index) if isinstance(i, Range)]
        if axis < len(ranges):
            place = ranges[axis]
            span = edge.index[place]
            assert isinstance(span, Range)
            index: tuple[Index, ...] = (*edge.index[:place], self._part(span, build), *edge.index[place + 1 :])
            return replace(edge, index=index)
        if edge.source in chosen:
            tile, by_step = self.graph[self.tiles[edge.source]], edge.by_step(self.graph[edge.source].domain)
            return replace(edge, source=tile.id, index=tuple(by_step.get(s, Point(s.expr)) for s in tile.domain.steps))
        return build.add(ops.Gather(axis), edge, positions(build, self.start, Expr.of(self.size)))

    def _part(self, span: Range, build: Builder) -> Range:
        """The part of a range that its n-th tile reads."""
        first = span.start + self.start * span.stride
        last = first + self.size * span.stride
        if self.divides and span.stop - span.start == self.whole * span.stride:
            return Range(first, last, span.stride, Expr.of(self.size))
        stop = span.stop if span.stop == last else minimum(last, span.stop)
        if not self._holds(span.stop - first, build):
            stop = maximum(stop, first)
        return Range(first, stop, span.stride, Expr.of(self.size))

    def _holds(self, expression: Expr, build: Builder) -> bool:
        """Whether an expression is surely not negative in the domain of the nodes that `build` adds."""
        assert build.domain is not None
        condition = build.domain.condition
        facts = [Expr.of(0)]
        for part in condition.parts:
            if isinstance(part, Comparison) and part.kind == ">=":
                facts.append(part.expr)
        return any(provably_nonnegative(expression - least) for least in facts)

    def _reduce(self, seed: Seed, chosen: Chosen) -> None:
        """Reduce each tile, accumulate the results, and put the last accumulated value in place of the node."""
        node, type = seed.node, seed.node.outputs[0]
        fn = _reduction(node)
        build = Builder(self.graph, node, self._domain(node, self._needed(seed.length)))
        operands = []
        for edge, axis in zip(node.inputs, seed.axes, strict=True):
            operand = self._operand(edge, axis, chosen, build)
            ranges = sum(isinstance(index, Range) for index in edge.index)
            has_zeros = fn == "sum" and axis < ranges  # past its end, a range has zeros
            is_neutral = self.divides or has_zeros or (seed.masked and self._is_masked(edge, chosen))
            operands.append(operand if is_neutral else self._inside(operand, axis, fn, build))
        partial = build.add(node.op, *operands)
        outside = Builder(self.graph, node)
        neutral = outside.add(ops.Broadcast(type.shape, ()), literal(outside, type.dtype, NEUTRAL[fn]))
        combined = accumulated(build, fn, neutral, partial, self.step, Expr.of(0), name=node.name)
        length = self.whole if seed.length is None else seed.length
        steps = self.graph[combined.source].domain.steps
        result = replace(combined, index=tuple(Point((length - 1) // self.size if s == self.step else s.expr) for s in steps))
        if provably_nonnegative(length - 1):
            self.graph.put(replace(node, op=ops.Identity(), inputs=(result,)))
        else:  # an empty dimension has no tiles
            branches = (replace(neutral, condition=length <= 0), replace(result, condition=length >= 1))
            self.graph.put(replace(node, op=ops.Merge(type), inputs=branches))

    def _is_masked(self, edge: Edge, chosen: Chosen) -> bool:
        """Whether each tile computes its part of the mask that `pad` put on an operand, by its own positions.

        A whole mask with other readers stays a whole: past its end, a tile that reads it gets its last element again.
        """
        if edge.source not in chosen:
            return False
        where, (_, rule) = self.graph[edge.source], chosen[edge.source]
        return self._is_recomputed(where.inputs[0], rule.operands[0], chosen)

    def _is_recomputed(self, edge: Edge, axis: int | None, chosen: Chosen) -> bool:
        if axis is None or axis < sum(isinstance(index, Range) for index in edge.index):
            return True  # it does not vary along the dimension, or reads a range, which has zeros past its end
        if edge.source not in chosen:
            return False
        node, (_, rule) = self.graph[edge.source], chosen[edge.source]
        if isinstance(node.op, ops.Iota):
            return True
        return all(self._is_recomputed(e, a, chosen) for e, a in zip(node.inputs, rule.operands, strict=True))

    def _inside(self, operand: Edge, axis: int, fn: str, build: Builder) -> Edge:
        """A tile with neutral elements past the end of the dimension."""
        size = Expr.of(self.size)
        end = build.filled((size,), self.whole)
        before = build.add(ops.Compare("lt"), positions(build, self.start, size), end)
        return zeros_outside(build, operand, before, (axis,), NEUTRAL[fn])

"""Compact values: a loop keeps a narrow value, and what reads a wide one at all points computes it from the narrow one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tempo_core.ir import ops
from tempo_core.ir.costs import ELEMENTWISE, VIEWS
from tempo_core.ir.dependence import forward_order, innermost_nests
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.passes.base import Pass
from tempo_core.passes.batch.leading import Vectorizer
from tempo_core.passes.batch.vectorize import separable
from tempo_core.passes.clean.cse import Cse
from tempo_core.passes.clean.simplify import Simplify
from tempo_core.passes.decisions import note
from tempo_core.passes.keep.cut import worth_repeating
from tempo_core.passes.tiles.strip import Stripping
from tempo_core.passes.tiles.tile import Tiling, dimensions
from tempo_core.prices import QUICK, price_of_keeping
from tempo_core.symbolic.condition import Bool, conjunction
from tempo_core.symbolic.domain import Range, is_full_range, is_own_point
from tempo_core.symbolic.expr import Symbol
from tempo_core.target import CPU, Target


@dataclass(frozen=True)
class Compact(Pass):
    """Copy quick operations out of a loop for readers of their values at all points, if the loop has to keep less then.

    Before: steps are vectorized where no dependence forbids it. What a loop over a step computes, and operations outside of the loop read
    at all points, is kept at all points. After: those operations read copies, which are computed at all points at once from narrower
    values that the loop keeps. A minimum cut decides which ones (`passes/keep/cut.py`).

    Elementwise operations and reductions compute such a copy as they read it. Others (products) need it in memory. They read a copy only if
    they run in parts: in tiles, whose sizes are `tiles`, or in strips. `numbers` are the bounds that are known, and `target` the device, for strips. `but`
    names steps that stay loops.

    Rewrite: `x[t] = cast(byte[t]) / 255; h[t + 1] = f(x[t]); s = sum(x[0:T])` -> `...; s = sum(cast(byte[0:T]) / 255)`
    """

    numbers: tuple[tuple[Symbol, int], ...] = ()
    target: Target = CPU
    but: tuple[str, ...] = ()
    tiles: tuple[tuple[str, int], ...] = ()
    name: str = field(default="compact", init=False)

    def apply(self, graph: Graph) -> Graph:
        deciding = [graph.decided_for]
        compacted = graph
        for step in graph.order:
            if step.name not in self.but:
                compacted = _Loop(compacted, step).rewritten(self, deciding)
        compacted = graph.copy() if compacted is graph else Cse().apply(Simplify().apply(compacted))
        compacted.decided_for = conjunction(*deciding)
        return compacted

    def parts(self, graph: Graph, step: Symbol) -> list[Tiling]:
        """What runs in tiles or strips over a step."""
        numbers, size = dict(self.numbers), dict(self.tiles).get(step.name)
        if size is not None:
            return [Tiling(graph, step, whole, size) for whole in dimensions(graph, step, size)]
        wholes = dimensions(graph, step, products_only=True) if step.bound_symbol in numbers else ()
        return [Stripping(graph, step, whole, numbers, self.target) for whole in wholes]


class _Loop:
    """The nodes in loops over a step, and the reads of their values at all points."""

    def __init__(self, graph: Graph, step: Symbol):
        self.graph, self.step = graph, step
        self.users, self.nests = graph.users(), innermost_nests(graph)
        self.reads: dict[Key, list[Node]] = {}  # by value: the nodes outside of the loop that may read a copy
        self.kept: set[Key] = set()  # values that something else reads at all points
        for reader in graph:
            for edge in reader.inputs:
                if step in graph[edge.source].domain:
                    self._add(reader, edge)

    def _add(self, reader: Node, edge: Edge) -> None:
        source, key = self.graph[edge.source], (edge.source, edge.output)
        others = edge.by_step(source.domain)
        index = others.pop(self.step)
        if isinstance(index, Range):
            is_own = set(reader.domain.steps) == others.keys() and all(is_own_point(i, s) for s, i in others.items())
            if is_own and is_full_range(index, self.step):
                self.reads.setdefault(key, []).append(reader)
            else:
                self.kept.add(key)
        elif self.step in reader.domain and self.nests.get(reader.id) != self.nests.get(source.id):
            self.kept.add(key)  # in another loop

    def rewritten(self, options: Compact, deciding: list[Bool]) -> Graph:
        """The graph in which what reads all points of wide values reads copies. Adds the numbers that decided to `deciding`."""
        sinks = {key for key in self.reads if key not in self.kept and self._operands(key)}
        while copies := self._copied(sinks):
            graph = self._with_copies(copies, sinks)
            whole = {key for key in sinks & copies.keys() if not all(map(self._is_fused, self.reads[key]))}
            parts = options.parts(graph, self.step) if whole else []
            deciding += [part.deciding for part in parts]
            in_parts = {node_id for part in parts if part.pays for node_id in part.choose()[1]}
            whole = {key for key in whole if copies[key] not in in_parts}
            if not whole:
                for node_id, _ in copies:
                    note(node_id, "computed again for all points of {} at once: the loop keeps a narrower value", self.step)
                return graph
            sinks -= whole
        return self.graph

    def _copied(self, sinks: set[Key]) -> dict[Key, int]:
        """The values to compute again for readers of `sinks`, sources first, with the ids of their copies."""
        kept = self.kept | (self.reads.keys() - sinks)

        def price(key: Key) -> int:
            node = self.graph[key[0]]
            return price_of_keeping(node.outputs[key[1] : key[1] + 1], node.domain, key in kept)

        again = worth_repeating(sorted(sinks), price, self._operands)
        return {(n, 0): self.graph.next_id + n for n in forward_order(self.graph) if (n, 0) in again}

    def _with_copies(self, copies: dict[Key, int], sinks: set[Key]) -> Graph:
        graph = self.graph.copy()

        def moved(edge: Edge) -> Edge:
            return edge.of(copies.get((edge.source, edge.output), edge.source))

        for (node_id, _), copy in copies.items():
            node = graph[node_id]
            graph.put(replace(node, id=copy, inputs=tuple(map(moved, node.inputs)), name=""))
        for reader in {reader.id: reader for key in sinks & copies.keys() for reader in self.reads[key]}.values():
            graph.put(reader.reading(tuple(map(moved, reader.inputs))))
        return Vectorizer(graph, self.step, set(copies.values())).run()

    def _operands(self, key: Key) -> list[Key] | None:
        """The values of the loop from which a value is computed, at the same point. None if it cannot be computed again."""
        node = self.graph[key[0]]
        edges = [edge for edge in node.inputs if self.step in self.graph[edge.source].domain]
        is_everywhere = self.step not in node.domain.condition.steps and separable(self.graph, node, self.step)
        is_at_point = all(edge.is_own_point(self.graph[edge.source].domain) for edge in edges)
        if not is_everywhere or not is_at_point or not (node.op.cost_class in QUICK or isinstance(node.op, ops.Gather)):
            return None
        return [(edge.source, edge.output) for edge in edges]

    def _is_fused(self, node: Node) -> bool:
        """Whether XLA makes what a node reads a part of it, or of its readers."""
        if isinstance(node.op, VIEWS) and not isinstance(node.op, ops.Merge):
            return all(self._is_fused(reader) for reader, _ in self.users[node.id])
        return node.op.cost_class in ELEMENTWISE or isinstance(node.op, ops.Reduce)

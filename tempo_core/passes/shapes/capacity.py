"""Bounds that are known when a program runs: sizes become the capacity, and the number itself a value of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from tempo_core.ir import ops
from tempo_core.ir.dependence import deciding as nodes_deciding
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Pass
from tempo_core.passes.clean.narrow import at_points
from tempo_core.passes.shapes.pad import padded_again
from tempo_core.symbolic.condition import Bool, Comparison, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, step_order
from tempo_core.symbolic.expr import Expr, FloorDivide, Modulo, Symbol, minimum


@dataclass(frozen=True)
class Capacity(Pass):
    """A program for all values of some bounds, up to a capacity each.

    Before: a graph for any bounds, without islands. After: for each of these bounds, the graph has one more step, the first, and a
    run takes one point of it: `T` is now `T_last + 1`, for the step `T_last < T_max`. So a bound is a step of a loop around the whole
    program, of which a run executes one iteration. Steps below `T` become steps below `T_max` under the condition `t <= T_last`; sizes
    that vary with `T` are padded as those that vary with any step.

    Rewrite: `x[0:T].sum() over (t)` -> `x[T_last, 0:T_last + 1 to T_max].where(iota(T_max) < T_last + 1, 0).sum() over (T_last, t)`
    """

    least: tuple[tuple[Symbol, int], ...] = ()  # the bounds, each with its least value
    name: str = field(default="capacity", init=False)
    effect: ClassVar[str] = (
        "made ready for the bounds that a run chooses: sizes are those of the capacity, masked where that matters"
    )

    def apply(self, graph: Graph) -> Graph:
        if not self.least:
            return graph
        least = dict(self.least)
        return _Lifting(_around_inner_ends(_with_true_bounds(graph, least)), least).run()


def _with_true_bounds(graph: Graph, chosen: Mapping[Symbol, int]) -> Graph:
    """A graph in which what decides an end has its own number for the bound: for others, it is the one that the run finds out.

    A program cannot let an end depend on its bound, but a pass may: for a place after all others.
    """
    for bound, end in graph.ends().items():
        deciding = nodes_deciding(graph, end) | {end.id}
        numbers = [n for n in graph if n.id in deciding and isinstance(n.op, ops.Eval) and bound in n.op.symbols]
        if bound not in chosen or not numbers:
            continue
        graph = graph.copy()
        for node in numbers:
            readers = [n for n in graph if n.id not in deciding and any(edge.source == node.id for edge in n.inputs)]
            if readers:
                other = graph.add(node.op, (), domain=node.domain, where=node.where).id
                for reader in readers:
                    edges = (replace(e, source=other) if e.source == node.id else e for e in reader.inputs)
                    graph.put(replace(reader, inputs=tuple(edges)))
    return graph


def _around_inner_ends(graph: Graph) -> Graph:
    """The graph where what a pass computed from an inner end alone is computed at each point of the outer steps: the end varies with them."""
    for bound, outer in graph.outer().items():
        apart = [n for n in graph if not set(outer) <= set(n.domain.steps) and not isinstance(n.op, (ops.Input, ops.Output))]
        moved = {n.id for n in apart if bound in n.symbols}
        while more := {n.id for n in apart if any(e.source in moved for e in n.inputs)} - moved:
            moved |= more
        if not moved:
            continue
        before, graph = graph, graph.copy()
        domains = {n: replace(graph[n].domain, steps=step_order((*outer, *graph[n].domain.steps), graph.order)) for n in moved}
        for node in before:
            edges = (_read_at(e, before[e.source], domains[e.source]) if e.source in moved else e for e in node.inputs)
            graph.put(replace(node, inputs=tuple(edges), domain=domains.get(node.id, node.domain)))
    return graph


def _read_at(edge: Edge, source: Node, domain: Domain) -> Edge:
    """A read of a source that is over more steps now: at the reader's own point of each."""
    at = edge.by_step(source.domain)
    return replace(edge, index=tuple(at.get(step, Point(step.expr)) for step in domain.steps))


class _Lifting:
    def __init__(self, graph: Graph, least: Mapping[Symbol, int]):
        self.graph, names = graph, {symbol.name for step in graph.order for symbol in (step, step.bound_symbol)}
        self.last: dict[Symbol, Symbol] = {}  # by bound: the step in whose terms it is
        for bound in least:
            suffix = "" if not {f"{bound}_last", f"{bound}_max"} & names else "_"
            self.last[bound] = Symbol(f"{bound}_last{suffix}", f"{bound}_max{suffix}")
        self.values: dict[Symbol, Expr] = {bound: last.expr + 1 for bound, last in self.last.items()}
        most: dict[Symbol, Expr] = {bound: last.bound_expr for bound, last in self.last.items()}
        self.derived: dict[Symbol, Expr] = {}
        for bound, expression in graph.derived.items():
            if expression.symbols.isdisjoint(self.values):
                self.derived[bound] = expression
            else:  # of a step that a pass added, such as the tiles of a step below `T`
                self.derived[Symbol(f"{bound}_max")] = expression.substitute(most)
                most[bound] = Symbol(f"{bound}_max").expr
                self.values[bound] = expression.substitute(self.values)
        self.most = most
        self.deciding = {
            bound: nodes_deciding(graph, end) for bound, end in graph.ends().items()
        }  # the nodes that an end depends on
        ends = {bound: end.id for bound, end in graph.ends().items()}
        self.before_end = {bound: self.deciding.get(bound, frozenset()) | {ends.get(bound)} for bound in least}
        self.steps: dict[Symbol, Symbol] = {}
        for step in graph.order:
            if step.bound_symbol in most:
                (bound_symbol,) = most[step.bound_symbol].symbols
                self.steps[step] = Symbol(step.name, bound_symbol.name)
        self.conditions = {new: self.values[old.bound_symbol] - 1 - new.expr >= 0 for old, new in self.steps.items()}
        self.outer = graph.outer()
        self.substitution = {**self.values, **{old: new.expr for old, new in self.steps.items()}}
        self.first = {bound: self.last[bound].expr >= number - 1 for bound, number in least.items() if number > 1}

    def run(self) -> Graph:
        graph, chosen = self.graph, tuple(self.last.values())
        order = (*chosen, *(self.steps.get(step, step) for step in graph.order))
        fresh = Graph(
            order,
            derived=self.derived,
            chosen=(*chosen, *graph.chosen),
            decided_for=graph.decided_for,
            branch_lines=graph.branch_lines,
        )
        sizes: dict[tuple[int, int], tuple[Expr, ...]] = {}  # the true shapes of inputs, which have capacities for sizes
        deciding = frozenset().union(*self.deciding.values())
        for node in graph:
            if node.id in deciding:
                sizes |= {(node.id, k): self._true_shape(type) for k, type in enumerate(node.outputs)}
            if isinstance(node.op, (ops.Input, ops.Constant)):  # not computed: such a value exists for all runs
                node = replace(node, domain=Domain(tuple(self.steps.get(step, step) for step in node.domain.steps)))
            if isinstance(node.op, ops.Input):
                op = replace(node.op, shape=tuple(size.substitute(self.most) for size in node.op.shape))
                sizes[node.id, 0] = self._true_shape(node.outputs[0])
                fresh.put(replace(node, op=op, outputs=op.infer(())))
            elif isinstance(node.op, ops.Constant):
                fresh.put(node)
            else:
                fresh.put(self._lifted(node))
        # A value that decides where one step ends may still vary with the length of another, or with a step, and is padded along that;
        # so may be what it is computed from.
        varying = {node.id for node in fresh if node.id in deciding and not _is_static(fresh, node)}
        endless: dict[int, dict[Symbol, Expr]] = {}  # what decides an end takes values as if there were none
        for bound, nodes in self.deciding.items():
            for n in nodes:
                endless.setdefault(n, {})[self.last[bound]] = self.most[bound] - 1
        return padded_again(fresh, sizes, deciding - varying, endless)

    def _true_shape(self, type: TensorType) -> tuple[Expr, ...]:
        return tuple(size.substitute(self.substitution) for size in type.shape)

    def _lifted(self, node: Node) -> Node:
        """The node over the chosen steps too.

        What decides where a step ends knows no end: there the bound is its capacity. Values at points before the end do not depend on it.
        """
        chosen = tuple(self.last.values())
        steps = tuple(self.steps.get(step, step) for step in node.domain.steps)
        whole = {bound for bound, around in self.outer.items() if not set(around) <= set(node.domain.steps)}  # it has no end
        inside = (
            self.conditions[self.steps[step]]
            for step in node.domain.steps
            if step in self.steps and step.bound_symbol not in whole
        )
        most = {bound: self.most[bound] for bound, deciding in self.deciding.items() if node.id in deciding or bound in whole}
        values = {**self.substitution, **most}
        of_points = {
            **values,
            **{b: self.values[b] for b in most if b not in whole and any(s.bound_symbol == b for s in node.domain.steps)},
        }
        first = (condition for bound, condition in self.first.items() if node.id not in self.before_end[bound])
        condition = conjunction(node.domain.condition.substitute(of_points), *inside)
        known = (self._known(part, most) for part in condition.parts)
        domain = Domain((*chosen, *steps), conjunction(*first, *known))
        inputs = tuple(self._edge(edge, values) for edge in node.inputs)
        return replace(at_points(node, values), domain=domain, inputs=inputs)

    def _known(self, part: Bool, most: Mapping[Symbol, Expr]) -> Bool:
        """A part of the condition on the points of a node that decides ends, for runs of which these are the most.

        `T_last >= t + 1`, which says that the step goes on after the point, is known at the point. Another one, such as
        `2 * (T_last // 2) >= t`, would need the end: more points exist then than are needed.
        """
        for bound, limit in most.items():
            last = self.last[bound]
            goes_on = isinstance(part, Comparison) and part.kind == ">=" and last not in (part.expr - last.expr).symbols
            if last in part.symbols and not goes_on:
                part = part.substitute({last: limit - 1})
        return part

    def _edge(self, edge: Edge, values: Mapping[Symbol, Expr]) -> Edge:
        moved = edge.substitute(values)
        if any(map(_goes_around, edge.index)):  # at the points of a run, `t` is `min(t, T_last)`: so the quotients are few
            inside = {old: minimum(new.expr, self.values[old.bound_symbol] - 1) for old, new in self.steps.items()}
            index = (at.substitute({**values, **inside}) if _goes_around(at) else at.substitute(values) for at in edge.index)
            moved = replace(moved, index=tuple(index))
        if isinstance(self.graph[edge.source].op, (ops.Input, ops.Constant)):
            return moved
        return replace(moved, index=(*(Point(last.expr) for last in self.last.values()), *moved.index))


def _goes_around(index: Index) -> bool:
    """Whether an index divides by a bound: `(t + 1) % T`."""
    ends = (index.expr,) if isinstance(index, Point) else (index.start, index.stop)
    divisions = (atom for end in ends for atom in end.atoms if isinstance(atom, (FloorDivide, Modulo)))
    return any(not atom.denominator.is_constant for atom in divisions)


def _is_static(graph: Graph, node: Node) -> bool:
    return all(type.is_static for type in (*node.outputs, *(graph.edge_type(edge) for edge in node.inputs)))

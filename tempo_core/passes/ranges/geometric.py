"""Linear recurrences with one constant factor: powers of the factor say in one operation what the recurrence says point by point.

`a[t] = c * a[t - 1] + b[t]` has the last point `sum(c ** (T - 1 - t) * b[t])`. Where nothing is added after the first point, as in the
gradient of the last one, `a[t]` is `c ** t * a[0]`. No power is less than the smallest number, so what is infinite stays infinite.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tempo_core.ir import ops
from tempo_core.ir.builder import Builder, literal
from tempo_core.ir.graph import Edge, Graph, Node, constant_number, is_identity
from tempo_core.ir.labelled import Labelled, product, repeated
from tempo_core.ir.ranges.lifted import everywhere
from tempo_core.passes.base import operand_domains, read_at, redirect, take_over
from tempo_core.passes.decisions import note
from tempo_core.passes.ranges.factors import factors_of
from tempo_core.symbolic.condition import FALSE, TRUE, Bool, equal
from tempo_core.symbolic.domain import Domain, Point, full_range
from tempo_core.symbolic.expr import Expr, Symbol

_POINT = "point"  # the label of the dimension that points become


@dataclass(frozen=True)
class Geometric:
    """`node[t] = factor * node[t - 1] + terms[t]`, or of `t + 1` if `reverse`, at all points after the first one that it meets."""

    graph: Graph
    node: Node
    step: Symbol
    reverse: bool
    factor: float
    terms: Edge

    @property
    def is_exact(self) -> bool:
        """Whether powers of the factor are as exact as repeated products, and none of them is infinite."""
        return self.node.outputs[0].dtype in ("float32", "float64") and 0 < self.factor <= 1

    @property
    def ends(self) -> tuple[Expr, Expr]:
        """The first and the last point that the recurrence meets."""
        end = self.step.bound_expr - 1
        return (end, Expr.of(0)) if self.reverse else (Expr.of(0), end)

    def put_sum(self) -> bool:
        """Make the last point, which is all that is read, one product of matrices, if outer products are added; whether they are."""
        start, rest = self._terms()
        source = self.graph[rest.source]
        each = Builder(self.graph, self.node, Domain(self.node.domain.steps, TRUE if start is None else self._after_the_first))
        factors = factors_of(self.graph, source)
        edges = [read_at(factor.edge, source.domain, replace(rest, condition=TRUE)) for factor in factors or ()]
        if factors is None or None in edges:
            return False
        left, right = (each.add(ops.Identity(), edge) for edge in edges if edge is not None)
        span = full_range(self.step)
        if start is not None:
            span = replace(span, stop=span.stop - 1) if self.reverse else replace(span, start=span.start + 1)
        at = tuple(span if step == self.step else Point(step.expr) for step in self.node.domain.steps)
        left = _scaled(each, left, self._power(each, self._distance(self.ends[1])))
        first, second = (
            Labelled(replace(edge, index=at), (_POINT, *factor.labels))
            for edge, factor in zip((left, right), factors, strict=True)
        )
        whole = everywhere(self.graph, self.node, frozenset({self.step}))
        shape = self.node.outputs[0].shape
        total = repeated(whole, product(whole, first, second, (_POINT,)), tuple(range(len(shape))), shape)
        if start is not None and constant_number(self.graph, start.source) != 0:
            total = whole.add(ops.Binary("add"), total, _scaled(whole, start, self._power(whole, self.step.bound_expr - 1)))
        note(self.node.id, "the sum of all points of {}, as one product: only its last point is read", self.step)
        redirect(self.graph, {self.node.id: total})
        return True

    def put_powers(self) -> bool:
        """Make each point a power of the factor times the first one, if nothing is added after that; whether it is so."""
        start, rest = self._terms()
        if start is None or constant_number(self.graph, rest.source) != 0:
            return False
        build = Builder(self.graph, self.node)
        power = self._power(build, self._distance(self.ends[0]))
        take_over(self.graph, self.node, _scaled(build, start, power))
        note(self.node.id, "a power of its factor: nothing is added along {}", self.step)
        for dot, slot, merge in list(self._contractions()):
            self._take_out(dot, slot, merge, start, power)
        return True

    def _terms(self) -> tuple[Edge | None, Edge]:
        """What the first point adds, if it differs, and what each other point adds."""
        merge, first = self.graph[self.terms.source], {self.step: self.ends[0]}
        if isinstance(merge.op, ops.Merge) and self.terms.is_own_point(merge.domain):
            at_first = next((edge for edge in merge.inputs if edge.condition.substitute(first) is not FALSE), merge.inputs[0])
            rest = [edge for edge in merge.inputs if edge is not at_first]
            is_one = len(rest) == 1 or all(constant_number(self.graph, edge.source) == 0 for edge in rest)
            if rest and is_one and at_first.condition == equal(self.step.expr, self.ends[0]):
                return replace(at_first.substitute(first), condition=TRUE), rest[0]
        return None, self.terms

    @property
    def _after_the_first(self) -> Bool:
        return self.step.expr <= self.step.bound_expr - 2 if self.reverse else self.step.expr >= 1

    def _distance(self, end: Expr) -> Expr:
        """From each point to the first or last one."""
        return self.step.expr if end == 0 else end - self.step.expr

    def _power(self, build: Builder, distance: Expr) -> Edge:
        """The factor to the power of a distance."""
        dtype = self.node.outputs[0].dtype
        if self.factor == 1:
            return literal(build, dtype, 1.0)
        base, least = (literal(build, dtype, number) for number in (self.factor, float(np.finfo(dtype).tiny)))
        power = build.add(ops.Binary("pow"), base, build.add(ops.Cast(dtype), build.add(ops.Eval(distance))))
        return build.add(ops.Binary("maximum"), power, least)

    def _contractions(self) -> Iterator[tuple[Node, int, Node | None]]:
        """The contractions of the node, or of a merge of it and zeros, which comes third."""
        users = self.graph.users()
        for reader, slot in users[self.node.id]:
            if not all(isinstance(at, Point) for at in reader.inputs[slot].index):
                continue
            others = [edge for edge in reader.inputs if edge.source != self.node.id]
            if _contracts(reader):
                yield reader, slot, None
            elif isinstance(reader.op, ops.Merge) and all(constant_number(self.graph, edge.source) == 0 for edge in others):
                for dot, place in users[reader.id]:
                    if _contracts(dot) and is_identity(dot.inputs[place], reader, dot.domain):
                        yield dot, place, reader

    def _take_out(self, dot: Node, slot: int, merge: Node | None, start: Edge, power: Edge) -> None:
        """Multiply by the power after the contraction, which then has the same first value at each point."""

        def product_of(build: Builder, edge: Edge) -> Edge:
            at, domain = replace(edge, condition=TRUE), self.node.domain
            first, scale = (read_at(e, domain, at) for e in (start, power)) if edge.source == self.node.id else (at, None)
            assert first is not None
            value = build.add(dot.op, *(first if k == slot else operand for k, operand in enumerate(dot.inputs)))
            return value if scale is None else _scaled(build, value, scale)

        if merge is None:
            take_over(self.graph, dot, product_of(Builder(self.graph, dot), dot.inputs[slot]))
            return
        branches = zip(merge.inputs, operand_domains(merge, dot.domain), strict=True)
        values = [
            replace(product_of(Builder(self.graph, dot, domain), edge), condition=edge.condition) for edge, domain in branches
        ]
        self.graph.put(replace(dot, op=ops.Merge(dot.outputs[0]), inputs=tuple(values)))


def _scaled(build: Builder, value: Edge, power: Edge) -> Edge:
    return build.add(ops.Binary("mul"), build.add(ops.Broadcast(build.type(value).shape, ()), power), value)


def _contracts(node: Node) -> bool:
    return isinstance(node.op, ops.Dot) and bool(node.op.left_contract)

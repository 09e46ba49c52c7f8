"""Many copies of one program as one more step: `ctx.copies("s")`. At the point s it is the program run alone with the seed `seed + s`.

What differs between copies has the step in its domain: random numbers, inputs that are given for each copy, and all that is computed from
them. The rest is computed once. Each node keeps its number, and reads its operands at its own copy; so gradients and recurrences, which
are nodes like others, belong to one copy each. Passes then compute all copies at once, as they do for any step without a recurrence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from tempo_core.errors import ArgumentError
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.tensor import Tensor, evaluate, view
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.types import TensorType
from tempo_core.ir.udf import Fed
from tempo_core.symbolic.domain import Domain, Point, full_range, identity
from tempo_core.symbolic.expr import Symbol

TOGETHER = "takes_copies"  # the attribute of functions on the host that are called once for all copies


def copied(context: BaseContext, new: BaseContext, tensors: Mapping[str, Tensor], inputs: Collection[str]) -> dict[str, Tensor]:
    """Fill `new`, which has one more step, the first one, with the copies of a context's program. Gives its tensors for `tensors`.

    Raises ArgumentError for what cannot be copied.
    """
    step = new.steps[0]
    for name in inputs:
        if name not in context.inputs:
            raise ArgumentError(
                f"the context has no input `{name}`", hint=f"its inputs are {', '.join(context.inputs) or 'none'}"
            )
    graph = context.graph
    differing = _differing(graph, inputs)
    _check(graph, differing, inputs)
    new.graph = fresh = graph.copy()
    fresh.order, fresh.facts, fresh.branch_lines = new.steps, {}, context.branch_lines
    for name in ("gradients", "leaves", "parameters", "recurrences", "branch_lines", "outer", "variables", "_streams"):
        setattr(new, name, getattr(context, name))
    new.inputs = {name: (step, *steps) if name in inputs else steps for name, steps in context.inputs.items()}
    with new:
        copying = _Copying(new, step, differing)
        return {name: view(new, copying.own(tensor.edge), tensor.user_condition) for name, tensor in tensors.items()}


def is_together(op: ops.Op) -> bool:
    """Whether a function on the host gets the values of all copies at once."""
    if not isinstance(op, ops.Sink) and not (isinstance(op, ops.Udf) and op.kind == "host"):
        return False
    owner: Any = op.fn
    while owner is not None and not getattr(owner, TOGETHER, False):
        owner = getattr(owner, "__self__", None) or getattr(owner, "__wrapped__", None)
    return owner is not None


def _differing(graph: Graph, inputs: Collection[str]) -> frozenset[int]:
    """The nodes whose values differ between copies."""
    readers: dict[int, list[int]] = {}
    waiting = []
    for node in graph:
        for edge in node.inputs:
            readers.setdefault(edge.source, []).append(node.id)
        op = node.op
        own = isinstance(op, ops.Udf) and op.stateful and not isinstance(op.fn, Fed)
        if isinstance(op, ops.Random) or own or is_together(op) or (isinstance(op, ops.Input) and op.name in inputs):
            waiting.append(node.id)
    found = set(waiting)
    while waiting:
        new = [reader for reader in readers.get(waiting.pop(), ()) if reader not in found]
        found |= {*new}
        waiting += new
    return frozenset(found)


def _check(graph: Graph, differing: Collection[int], inputs: Collection[str]) -> None:
    for node in graph:
        op = node.op
        if isinstance(op, ops.Udf) and isinstance(op.fn, Fed) and op.fn.name in inputs:
            raise ArgumentError(
                f"the streamed input `{op.fn.name}` cannot be given for each copy", where=node.where, hint="feed it as an array"
            )
        if node.id not in differing:
            continue
        if isinstance(op, ops.End):
            raise ArgumentError(
                f"the {op.name} depends on what differs between copies: a step ends at one place for all of them",
                where=node.where,
                hint="write the end as a condition in its recurrence: tp.where(done, x, following)",
            )
        if isinstance(op, ops.Udf) and op.stateful and not is_together(op):
            raise ArgumentError(
                f"the function `{op.name}` on the host has state, which would be shared by all copies",
                where=node.where,
                hint=f"write it for all of them: its arrays then have the copies as first dimension, and it has an attribute {TOGETHER} = True",
            )


class _Copying:
    """The rewrite of the nodes that differ."""

    def __init__(self, context: BaseContext, step: Symbol, differing: Collection[int]):
        self.graph, self.step, self.differing = context.graph, step, differing
        self.position = evaluate(step.expr).edge
        self.whole: dict[
            tuple[int, int], int
        ] = {}  # results that come for all copies at once, and the nodes that read one of them
        nodes = [node for node in self.graph if node.id in differing]
        wide = [node for node in nodes if is_together(node.op) or isinstance(node.op, ops.Input)]
        for node in wide:
            self._widen(node)
        for node in wide:
            self.graph.put(self.graph[node.id].reading(tuple(self._all(edge) for edge in node.inputs)))
        for node in nodes:
            if node not in wide:
                self._copy(node)

    def own(self, edge: Edge) -> Edge:
        """A read at the reader's own copy."""
        if edge.source not in self.differing:
            return edge
        gather, here = self.whole.get((edge.source, edge.output)), Point(self.step.expr)
        moved = edge if gather is None else replace(edge, source=gather, output=0)
        return replace(moved, index=(here, *edge.index))

    def _all(self, edge: Edge) -> Edge:
        """A read of all copies, as first dimension."""
        if (edge.source, edge.output) in self.whole:
            return edge
        own, source = self.own(edge), self.graph[edge.source]
        if own is edge:  # the same for all of them
            each = Edge(source.id, identity(source.domain), edge.output)
            node = self.graph.add(ops.Identity(), [each], domain=self._domain(source), name=source.name, where=source.where)
            own = replace(edge, source=node.id, output=0, index=(Point(self.step.expr), *edge.index))
        return replace(own, index=(full_range(self.step), *own.index[1:]))

    def _domain(self, node: Node) -> Domain:
        return Domain((self.step, *node.domain.steps), node.domain.condition)

    def _copy(self, node: Node) -> None:
        """The node at each copy."""
        op, inputs = node.op, tuple(map(self.own, node.inputs))
        if isinstance(op, ops.Random):
            op, inputs = replace(op, seeded=True), (self.position, *inputs)
        self.graph.put(replace(node, op=op, domain=self._domain(node), inputs=inputs))

    def _widen(self, node: Node) -> None:
        """A function that sees all copies at once, or an input with an array for all of them: its results have them as first dimension."""
        op, size = node.op, self.step.bound_expr
        types = tuple(TensorType(each.dtype, (size, *each.shape)) for each in node.outputs)
        if isinstance(op, ops.Input):
            op = replace(op, shape=(size, *op.shape))
        elif isinstance(op, ops.Udf):
            op = replace(op, types=types)
        self.graph.put(replace(node, op=op, outputs=types))
        for output in range(len(types)):
            read, domain = Edge(node.id, identity(node.domain), output), self._domain(node)
            gather = self.graph.add(ops.Gather(0), [read, self.position], domain=domain, name=node.name, where=node.where)
            self.whole[node.id, output] = gather.id

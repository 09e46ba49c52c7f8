"""Values that are repeated along dimensions: the factors of outer products, the gates of recurrences.

The labels of a factor are the dimensions of the product that its own become.
"""

from __future__ import annotations

from dataclasses import replace

from tempo_core.ir import ops
from tempo_core.ir.axes import ELEMENTWISE, places_of
from tempo_core.ir.builder import Builder
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.labelled import Labelled
from tempo_core.passes.base import operand_domains, read_at
from tempo_core.symbolic.condition import TRUE


def narrowed(graph: Graph, edge: Edge, around: frozenset[int] = frozenset()) -> Labelled | None:
    """What an edge's value repeats along some dimensions, also where functions or branches of such values are the value.

    `exp(-a[t].expand_dims(1))` of shape [H, N] repeats `exp(-a[t])`. New nodes compute what is repeated. `around` are the nodes that
    the search has come through.
    """
    source = graph[edge.source]
    if isinstance(source.op, ops.Broadcast):
        inner = read_at(source.inputs[0], source.domain, edge)
        return None if inner is None else Labelled(inner, source.op.axes)
    if not isinstance(source.op, (*ELEMENTWISE, ops.Merge)) or source.id in around:
        return None
    operands = [operand for each in source.inputs if (operand := narrowed(graph, each, around | {source.id}))]
    axes = tuple(sorted({axis for operand in operands for axis in operand.labels}))
    if len(operands) < len(source.inputs) or len(axes) == len(source.outputs[0].shape):
        return None
    shape = tuple(source.outputs[0].shape[axis] for axis in axes)
    inputs = []
    for operand, domain in zip(operands, operand_domains(source, source.domain), strict=True):
        repetition = ops.Broadcast(shape, tuple(axes.index(axis) for axis in operand.labels))
        value = Builder(graph, source, domain).add(repetition, replace(operand.edge, condition=TRUE))
        inputs.append(replace(value, condition=operand.edge.condition))
    op = ops.Merge(replace(source.op.type, shape=shape)) if isinstance(source.op, ops.Merge) else source.op
    return Labelled(replace(edge, source=graph.add(op, inputs, domain=source.domain, where=source.where).id), axes)


def factors_of(graph: Graph, products: Node) -> tuple[Labelled, Labelled] | None:
    """The factors of a product of two values with different dimensions, which may be transposed."""
    op, edges = products.op, products.inputs
    if isinstance(op, ops.Permute):
        inner = graph[edges[0].source]
        factors = factors_of(graph, inner) if edges[0].is_own_point(inner.domain) and inner.domain.condition is TRUE else None
        if factors is None:
            return None
        first, second = (replace(f, labels=tuple(op.order.index(axis) for axis in f.labels)) for f in factors)
        return first, second
    if isinstance(op, ops.Binary) and op.fn == "mul":
        left, right = (narrowed(graph, edge) for edge in edges)
        return None if left is None or right is None else (left, right)
    if not isinstance(op, ops.Dot) or not all(graph.edge_type(edges[0]).shape[axis] == 1 for axis in op.left_contract):
        return None
    sides = zip(edges, (op.left_contract, op.right_contract), places_of(graph, products), strict=True)
    left, right = (Labelled(_without(graph, products, e, axes), tuple(to[k] for k in sorted(to))) for e, axes, to in sides)
    return left, right


def _without(graph: Graph, products: Node, edge: Edge, axes: tuple[int, ...]) -> Edge:
    """A value without some of its dimensions, which have one element."""
    shape = graph.edge_type(edge).shape
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return Builder(graph, products).add(ops.Reshape(rest), edge) if axes else edge

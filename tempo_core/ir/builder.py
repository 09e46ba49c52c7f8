"""Nodes that a rewrite adds for a node of the graph, and the numbers that such nodes need."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np

from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import NEUTRAL as NEUTRAL
from tempo_core.ir.ops import Binary, Broadcast, Constant, Eval, Iota, Merge, Op, Where
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.condition import equal
from tempo_core.symbolic.domain import Domain, Point, identity
from tempo_core.symbolic.expr import Expr, Symbol

# By reducing function: the function of two elements that it repeats.
COMBINE = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and"}


@dataclass
class Builder:
    """Adds nodes to a graph for a node that is being rewritten (`like`). They have its domain and its line of the user's program.

    The new nodes have no name. The pass gives the name of `like` to the node that has its value.
    """

    graph: Graph
    like: Node
    domain: Domain | None = None

    def add(self, op: Op, *inputs: Edge, domain: Domain | None = None) -> Edge:
        """A new node's first output, read at the identity."""
        points = domain or self.domain or self.like.domain
        node = self.graph.add(op, inputs, domain=points, where=self.like.where)
        return Edge(node.id, identity(points))

    def type(self, edge: Edge) -> TensorType:
        return self.graph.edge_type(edge)


def positions(build: Builder, start: Expr, size: Expr, stride: int = 1) -> Edge:
    """The `size` numbers `start, start + stride, ...`."""
    offsets = build.add(Iota(size))
    if stride != 1:
        offsets = build.add(Binary("mul"), offsets, build.add(Broadcast((size,), ()), literal(build, "int32", stride)))
    return build.add(Binary("add"), offsets, build.add(Broadcast((size,), ()), build.add(Eval(start))))


def zeros_outside(build: Builder, value: Edge, inside: Edge, axes: tuple[int, ...], outside: float | str = 0.0) -> Edge:
    """`value` where `inside` holds, zeros (or the literal `outside`) elsewhere. `inside` is a boolean tensor over `axes` of the value."""
    type = build.type(value)
    zero = build.add(Broadcast(type.shape, ()), literal(build, type.dtype, outside))
    return build.add(Where(), build.add(Broadcast(type.shape, axes), inside), value, zero)


def accumulated(
    build: Builder, fn: str, start: Edge, each: Edge, step: Symbol, first: Expr, backwards: bool = False, name: str = ""
) -> Edge:
    """The reduction of the values of all points from `first` on up to each point: a recurrence along a step that begins with `start`."""
    domain, t = build.domain or build.like.domain, step.expr
    merge = build.graph.add(Merge(build.type(each)), domain=domain, name=name, where=build.like.where)
    total = build.add(Binary(COMBINE[fn]), Edge(merge.id, identity(domain)), each)
    before = tuple(Point(t + (1 if backwards else -1) if s == step else s.expr) for s in domain.steps)
    later = t <= first - 1 if backwards else t >= first + 1
    branches = replace(start, condition=equal(t, first)), replace(total, index=before, condition=later)
    build.graph.put(replace(merge, inputs=branches))
    return total


def repeated(value: Edge, shape: tuple[Expr, ...], build: Builder) -> Edge:
    """`value` repeated along a new leading dimension; once, if it does not vary with any step."""
    return build.add(Broadcast(shape, tuple(range(1, len(shape)))), value, domain=None if value.steps else Domain(()))


def literal(build: Builder, dtype: str, value: float | str) -> Edge:
    """A scalar constant of a dtype; "lowest" and "highest" are the neutral elements of max and min, and "last" that of sorting."""
    return build.add(constant_op(dtype, value))


def constant_op(dtype: str, value: float | str) -> Constant:
    """The op of a scalar constant; "lowest", "highest" and "last" as in `literal`."""
    if value == "last":  # after infinite numbers, and after NaN, which sorts behind them
        value = math.nan if is_float(dtype) else "highest"
    if value in ("lowest", "highest"):
        if dtype == "bool":
            element: Any = value == "highest"
        elif is_float(dtype):
            element = -np.inf if value == "lowest" else np.inf
        else:
            limits = np.iinfo(dtype)
            element = limits.min if value == "lowest" else limits.max
    else:
        element = value
    if dtype == "bfloat16":
        return Constant(dtype, (), np.asarray(element, ml_dtypes.bfloat16).tobytes())
    return Constant(dtype, (), np.asarray(element).astype(dtype).tobytes())

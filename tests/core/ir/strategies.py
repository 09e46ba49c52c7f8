"""Hypothesis strategies for the ir: expressions, conditions, edges and whole graphs that fit together."""

from __future__ import annotations

import functools
import operator

import numpy as np
from hypothesis import strategies as st

from tempo_core.errors import TempoError
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import (
    BINARY,
    COMPARE,
    REDUCE,
    UNARY,
    Argmax,
    Argsort,
    Binary,
    Broadcast,
    Cast,
    Compare,
    Constant,
    Conv,
    CumMax,
    CumSum,
    Dataflow,
    Dataflowed,
    DiscountedSum,
    Dot,
    End,
    Eval,
    Flip,
    Gather,
    Identity,
    Input,
    Iota,
    LinearScan,
    Merge,
    Output,
    Pad,
    Permute,
    Random,
    Reduce,
    Reshape,
    Scatter,
    Sink,
    Slice,
    Udf,
    Unary,
    Update,
    Where,
)
from tempo_core.ir.types import DTYPES, TensorType
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.domain import Domain, Point, Range
from tempo_core.symbolic.expr import Expr, Symbol, maximum, minimum

ORDER = (Symbol("b", "B"), Symbol("i", "I"), Symbol("t", "T"))
STEPS = tuple(step.expr for step in ORDER)
BOUNDS = tuple(step.bound_expr for step in ORDER)

NAMES = st.sampled_from(["", "", "w", "layer.0.weight", "two words", 'quo"ted = 1', "naïve\n@ x", "a\u2028b"])
LINES = st.sampled_from(["", "train.py:3", 'C:\\odd "dir"\\a @ b.py:7', "over (t) where.py:1"])


def a_function(*arrays):
    return arrays


def another_function(*arrays, **point):
    return arrays


@functools.cache  # building a strategy takes longer than drawing from it
def exprs(leaves: tuple[Expr, ...] = (*STEPS, *BOUNDS)) -> st.SearchStrategy[Expr]:
    leaf = st.one_of(st.sampled_from(leaves), st.integers(-4, 9).map(Expr.of))

    def grow(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
        return st.one_of(
            st.tuples(st.sampled_from([operator.add, operator.sub, operator.mul, minimum, maximum]), inner, inner).map(
                lambda parts: parts[0](parts[1], parts[2])
            ),
            st.tuples(st.sampled_from([operator.floordiv, operator.mod]), inner, st.integers(1, 5)).map(
                lambda parts: parts[0](parts[1], parts[2])
            ),
        )

    return st.recursive(leaf, grow, max_leaves=3)


@functools.cache
def conditions() -> st.SearchStrategy[Bool]:
    comparisons = [operator.ge, operator.le, operator.gt, operator.lt, operator.eq, operator.ne]
    leaf = st.tuples(st.sampled_from(comparisons), exprs(), exprs()).map(lambda parts: parts[0](parts[1], parts[2]))
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
            st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
            inner.map(operator.invert),
        ),
        max_leaves=3,
    )


@functools.cache
def indices() -> st.SearchStrategy[Point | Range]:
    size = st.one_of(st.none(), exprs(BOUNDS))
    return st.one_of(exprs().map(Point), st.builds(Range, exprs(), exprs(), st.integers(1, 3), size))


@st.composite
def constants(draw: st.DrawFn) -> Constant:
    dtype = draw(st.sampled_from(DTYPES))
    sizes = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    count = int(np.prod(sizes, dtype=int)) * np.dtype(dtype).itemsize
    data = draw(
        st.lists(st.integers(0, 1), min_size=count, max_size=count)
        if dtype == "bool"
        else st.binary(min_size=count, max_size=count)
    )
    return Constant(dtype, sizes, bytes(data))


@functools.cache
def sources() -> st.SearchStrategy:
    sizes = st.lists(exprs(), max_size=2).map(tuple)
    types = st.builds(TensorType, st.sampled_from(DTYPES), sizes)
    floats = st.builds(TensorType, st.just("float32"), sizes)
    return st.one_of(
        constants(),
        st.builds(Iota, exprs()),
        st.builds(Eval, st.one_of(exprs(), conditions())),
        st.builds(lambda name, type_: Input(name, type_.dtype, type_.shape), NAMES, floats),
        st.builds(Random, st.sampled_from(["uniform", "normal", "bits"]), st.integers(0, 5), sizes, st.booleans()),
        st.builds(
            lambda function, outs, kind, stateful, name: Udf(function, tuple(outs), kind, stateful, name),
            st.sampled_from([a_function, another_function]),
            st.lists(types, min_size=1, max_size=3),
            st.sampled_from(["jax", "host"]),
            st.booleans(),
            NAMES,
        ),
    )


@functools.cache
def readers(rank: int) -> st.SearchStrategy:
    """Ops that read one operand of `rank` dimensions (most of them accept any dtype)."""
    axes = st.integers(0, max(rank - 1, 0))
    return st.one_of(
        st.builds(Unary, st.sampled_from(list(UNARY))),
        st.builds(Cast, st.sampled_from(DTYPES)),
        st.builds(Identity, st.booleans()),
        st.builds(lambda fn, chosen: Reduce(fn, tuple(sorted(chosen))), st.sampled_from(REDUCE), st.sets(axes)),
        st.builds(Argmax, axes),
        st.builds(CumSum, axes, st.booleans()),
        st.builds(CumMax, axes, st.booleans()),
        st.builds(DiscountedSum, axes, st.floats(allow_nan=False)),
        st.builds(lambda order: Permute(tuple(order)), st.permutations(range(rank))),
        st.builds(Slice, axes, exprs(), exprs(), st.integers(1, 3)),
        st.builds(Pad, axes, exprs(), exprs()),
        st.builds(Flip, axes),
    )


@functools.cache
def pairs() -> st.SearchStrategy:
    return st.one_of(st.builds(Binary, st.sampled_from(list(BINARY))), st.builds(Compare, st.sampled_from(list(COMPARE))))


@st.composite
def graphs(draw: st.DrawFn, conditional: bool = True) -> Graph:
    """A graph of up to eight nodes. All types fit together; indices are arbitrary."""
    graph = Graph(ORDER)
    for _ in range(draw(st.integers(1, 8))):
        name, where = draw(NAMES), draw(LINES)
        condition = draw(conditions()) if conditional and draw(st.booleans()) else TRUE
        edges: tuple[Edge, ...] = ()
        if not graph.nodes or draw(st.integers(0, 2)) == 0:
            op = draw(sources())
        else:
            edge = _edge(draw, graph)
            kind, type_ = draw(st.integers(0, 4)), graph.edge_type(edge)
            edges = (edge, edge) if kind in (1, 2) else (edge,)
            op = draw(pairs()) if kind == 1 else LinearScan(0) if kind == 2 else draw(readers(type_.rank))
            if kind == 3:
                op, edges = Dataflow(_island(type_, draw(constants()))), (edge,)
            if kind == 4:
                itself = Edge(max(graph.nodes) + 1, tuple(map(Point, STEPS)))
                op, edges = Merge(type_), (Edge(edge.source, edge.index, edge.output, draw(conditions())), itself)
        domain = Domain(ORDER, condition)
        try:
            if isinstance(op, Merge):  # a merge reads itself, so its type is unknown before the node exists
                graph.put(Node(max(graph.nodes) + 1, op, domain, edges, (op.type,), name, where))
            else:
                graph.add(op, edges, domain=domain, name=name, where=where)
        except (TempoError, ValueError, ZeroDivisionError):
            continue  # the op does not accept its random operands
    readable = [node for node in graph if node.outputs]
    if readable:
        edge = _edge(draw, graph)
        graph.add(Output(0), (edge,), domain=Domain(ORDER))
        graph.add(Sink(a_function, "log"), (edge,), domain=Domain(ORDER))
    return graph


def _edge(draw: st.DrawFn, graph: Graph) -> Edge:
    source = draw(st.sampled_from([node for node in graph if node.outputs]))
    index = tuple(draw(indices()) for _ in source.domain.steps)
    return Edge(source.id, index, draw(st.integers(0, len(source.outputs) - 1)))


def _island(type_: TensorType, constant: Constant) -> Dataflowed:
    (of_constant,) = constant.infer(())
    inner = Dataflowed((type_,), ((Identity(True), (0,), (1,)),), (1, 0), (type_, type_))
    return Dataflowed(
        (type_,),
        ((constant, (), (1,)), (Dataflow(inner), (0,), (2, 3)), (Udf(another_function, (type_,)), (2, 1), (4,))),
        (4, 2),
        (type_, of_constant, type_, type_, type_),
    )


FOUR, T = Expr.of(4), BOUNDS[2]
SAMPLES = (  # fields that those of the table of ops (`every_op.py`) lack
    Constant("float32", (2,), np.array([1.5, -0.0], "float32").tobytes()),
    Iota(T + 1),
    Eval(STEPS[2] % 2),
    Eval(STEPS[2] >= 1),
    Input("x", "uint8", (FOUR, T)),
    Random("normal", 3, (FOUR,)),
    Random("bits", 4, (FOUR,), seeded=True),
    Where(1, STEPS[2] + 1),
    Cast("bfloat16"),
    Identity(stop_gradient=True),
    Reduce("sum", (0, 2)),
    Reduce("max", (1,)),
    Argsort(0, 1),
    CumSum(1, reverse=True),
    CumMax(0, reverse=True),
    LinearScan(0, reverse=True),
    DiscountedSum(0, 0.95),
    DiscountedSum(0, float("inf")),
    Dot((2,), (1,), (0,), (0,)),
    Conv((2,), (Expr.of(1),), (T - 1,), (1,), (3,), FOUR),
    Conv((1, 1), (Expr.of(0), T), (FOUR, T), (2, 1), (1, 1), Expr.of(1)),
    Reshape((FOUR * T,)),
    Broadcast((T, FOUR), (1,)),
    Slice(0, STEPS[2], minimum(STEPS[2] + 5, T), 2),
    Pad(0, STEPS[2], T - STEPS[2] - 1),
    Gather(1, batch=1),
    Scatter(0, T),
    Update("set", 1, batch=1),
    Merge(TensorType("float32")),
    Udf(a_function, (TensorType("float32"), TensorType("int32", (FOUR,))), "host", True, "environment step"),
    Sink(another_function, "log"),
    End(another_function, "end of t", T),
    Output(2),
)

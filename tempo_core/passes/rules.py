"""Simplification rules, as data: for each op the functions that may replace a node by another edge.

A rule takes a `View` of a node and returns the edge (in the node's own steps) that its readers can read instead, or None.
The comment at each row of `RULES` shows the algebra.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph, Node
from tempo_core.ir.ops import Op
from tempo_core.ir.types import TensorType
from tempo_core.passes.base import Builder, read_at
from tempo_core.symbolic.condition import TRUE, Truth
from tempo_core.symbolic.expr import Expr
from tempo_core.symbolic.proof import provably_nonnegative


@dataclass(frozen=True)
class View:
    """A node, with questions that rules ask about its operands."""

    graph: Graph
    node: Node
    build: Builder

    @property
    def op(self) -> Any:
        return self.node.op

    def edge(self, slot: int = 0) -> Edge:
        return self.node.inputs[slot]

    def type(self, slot: int = 0) -> TensorType:
        return self.graph.edge_type(self.node.inputs[slot])

    def operand(self, slot: int = 0) -> Op:
        return self.graph[self.edge(slot).source].op

    def inner(self, slot: int = 0, inner_slot: int = 0) -> Edge | None:
        """What operand `slot` itself reads, as this node would read it; None where that is no single edge."""
        edge = self.edge(slot)
        source = self.graph[edge.source]
        if not all(hasattr(i, "expr") for i in edge.index):
            return None  # a slice of results is not the result on a slice for every op
        return read_at(source.inputs[inner_slot], source.domain, edge)

    def number(self, slot: int) -> int | float | None:
        """The value of operand `slot` if it is one number, repeated."""
        return constant_number(self.graph, self.edge(slot).source)


def constant_number(graph: Graph, node_id: int) -> int | float | None:
    op = graph[node_id].op
    if isinstance(op, ops.Broadcast):
        return constant_number(graph, graph[node_id].inputs[0].source)
    if isinstance(op, ops.Constant) and op.sizes == () and op.dtype not in ("bool", "bfloat16"):
        return np.frombuffer(op.data, dtype=op.dtype)[0].item()
    return None


Rule = Callable[[View], "Edge | None"]


def _operand_if(condition: Callable[[View], bool]) -> Rule:
    return lambda view: view.edge() if condition(view) else None


def _neutral(slot: int, neutral: float) -> Rule:
    """The other operand, where operand `slot` is the neutral element."""
    return lambda view: view.edge(1 - slot) if view.number(slot) == neutral else None


def _binary(**rules: tuple[Rule, ...]) -> Rule:
    def rule(view: View) -> Edge | None:
        for candidate in rules.get(view.op.fn, ()):
            found = candidate(view)
            if found is not None:
                return found
        return None

    return rule


_FOLDED = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


def _fold_numbers(view: View) -> Edge | None:
    a, b = view.number(0), view.number(1)
    dtype = view.node.outputs[0].dtype
    if a is None or b is None or view.op.fn not in _FOLDED or (view.op.fn == "div" and b == 0) or dtype == "bfloat16":
        return None
    left, right = (np.dtype(dtype).type(v) for v in (a, b))
    with np.errstate(all="ignore"):  # overflow wraps around, or is infinite, as it would be when the program runs
        value = np.asarray(_FOLDED[view.op.fn](left, right), dtype=dtype)
    scalar = view.build.add(ops.Constant(dtype, (), value.tobytes()))
    shape = view.node.outputs[0].shape
    return view.build.add(ops.Broadcast(shape, ()), scalar) if shape else scalar


def _double_negation(view: View) -> Edge | None:
    inner = view.operand()
    return view.inner() if isinstance(inner, ops.Unary) and inner.fn == view.op.fn and view.op.fn in ("neg", "not") else None


def _cast_twice(view: View) -> Edge | None:
    """bool -> int -> float is bool -> float."""
    if isinstance(view.operand(), ops.Cast):
        inner = view.inner()
        if inner is not None and view.graph.edge_type(inner).dtype == "bool":
            return view.build.add(view.op, inner)
    return None


def _reshape_reshape(view: View) -> Edge | None:
    inner = view.inner() if isinstance(view.operand(), ops.Reshape) else None
    return None if inner is None else view.build.add(view.op, inner)


def _permute_permute(view: View) -> Edge | None:
    if not isinstance(view.operand(), ops.Permute):
        return None
    inner, first = view.inner(), view.operand()
    assert isinstance(first, ops.Permute)
    return None if inner is None else view.build.add(ops.Permute(tuple(first.order[k] for k in view.op.order)), inner)


def _broadcast_broadcast(view: View) -> Edge | None:
    first = view.operand()
    if not isinstance(first, ops.Broadcast):
        return None
    inner = view.inner()
    return (
        None if inner is None else view.build.add(ops.Broadcast(view.op.shape, tuple(view.op.axes[a] for a in first.axes)), inner)
    )


def _sum_of_broadcast(view: View) -> Edge | None:
    """Where only repeated axes are summed, a product with their size."""
    first = view.operand()
    if view.op.fn != "sum" or not isinstance(first, ops.Broadcast) or any(a in first.axes for a in view.op.axes):
        return None
    inner, dtype = view.inner(), view.node.outputs[0].dtype
    if inner is None:
        return None
    count = ops.product(tuple(first.shape[a] for a in view.op.axes))
    if count.steps or len(first.axes) != len(first.shape) - len(view.op.axes) or dtype == "bool":
        return None
    number: Edge = view.build.add(ops.Cast(dtype), view.build.add(ops.Eval(count)))
    shape = view.node.outputs[0].shape
    repeated = view.build.add(ops.Broadcast(shape, ()), number) if shape else number
    return view.build.add(ops.Binary("mul"), inner, repeated)


def _reduce_reduce(view: View) -> Edge | None:
    first = view.operand()
    if not isinstance(first, ops.Reduce) or first.fn != view.op.fn:
        return None
    inner = view.inner()
    if inner is None:
        return None
    rank = view.graph.edge_type(inner).rank
    kept = [a for a in range(rank) if a not in first.axes]
    axes = tuple(sorted((*first.axes, *(kept[a] for a in view.op.axes))))
    return view.build.add(ops.Reduce(view.op.fn, axes), inner)


def _reduce_of_permuted(view: View) -> Edge | None:
    """The order of axes does not matter to a reduction over them; the kept ones are permuted after it."""
    first = view.operand()
    inner = view.inner() if isinstance(first, ops.Permute) else None
    if inner is None:
        return None
    assert isinstance(first, ops.Permute)
    reduced = view.build.add(ops.Reduce(view.op.fn, tuple(sorted(first.order[a] for a in view.op.axes))), inner)
    kept = [k for a, k in enumerate(first.order) if a not in view.op.axes]
    order = tuple(sorted(kept).index(k) for k in kept)
    return reduced if order == tuple(range(len(order))) else view.build.add(ops.Permute(order), reduced)


def _sum_of_dot_batch(view: View) -> Edge | None:
    """Summing a batch dimension of a contraction is contracting it: gradients of weights become one product."""
    dot = view.operand()
    if view.op.fn != "sum" or not isinstance(dot, ops.Dot):
        return None
    batch = [a for a in view.op.axes if a < len(dot.left_batch)]
    a, b = view.inner(0, 0), view.inner(0, 1)
    if not batch or a is None or b is None:
        return None
    kept = [k for k in range(len(dot.left_batch)) if k not in batch]
    contracted = ops.Dot(
        dot.left_contract + tuple(dot.left_batch[k] for k in batch),
        dot.right_contract + tuple(dot.right_batch[k] for k in batch),
        tuple(dot.left_batch[k] for k in kept),
        tuple(dot.right_batch[k] for k in kept),
    )
    product = view.build.add(contracted, a, b)
    rest = tuple(axis - len(batch) for axis in view.op.axes if axis not in batch)
    return view.build.add(ops.Reduce("sum", rest), product) if rest else product


def _dot_of_permuted(view: View) -> Edge | None:
    """A contraction reads permuted operands by renumbering its axes, where its output keeps the order of free axes."""
    for slot in (0, 1):
        first = view.operand(slot)
        if not isinstance(first, ops.Permute):
            continue
        inner = view.inner(slot)
        if inner is None:
            continue
        op, rank = view.op, len(first.order)
        free = op.left_free(rank) if slot == 0 else op.right_free(rank)
        if [first.order[a] for a in free] != sorted(first.order[a] for a in free):
            continue
        if slot == 0:
            changed = ops.Dot(
                _through(first, op.left_contract), op.right_contract, _through(first, op.left_batch), op.right_batch
            )
            return view.build.add(changed, inner, view.edge(1))
        changed = ops.Dot(op.left_contract, _through(first, op.right_contract), op.left_batch, _through(first, op.right_batch))
        return view.build.add(changed, view.edge(0), inner)
    return None


def _through(permute: ops.Permute, axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(permute.order[a] for a in axes)


def _gather_all(view: View) -> Edge | None:
    """Indexing with 0, 1, ..., size - 1 is the operand itself."""
    index = view.operand(1)
    if (
        not isinstance(index, ops.Iota) or view.type(1).rank != 1
    ):  # a range of such operands has a row of positions for each point
        return None
    return view.edge(0) if view.op.batch == 0 and index.size == view.type(0).shape[view.op.axis] else None


def _gather_of_broadcast(view: View) -> Edge | None:
    """Indexing along an axis that only repeats is repeating the operand to the result's shape."""
    first = view.operand(0)
    if not isinstance(first, ops.Broadcast) or view.op.batch or view.op.axis in first.axes:
        return None
    inner = view.inner(0)
    if inner is None or not provably_nonnegative(view.type(0).shape[view.op.axis] - 1):
        return None  # of no elements there are zeros
    grown = view.type(1).rank - 1
    axes = tuple(a + grown * (a > view.op.axis) for a in first.axes)
    return view.build.add(ops.Broadcast(view.node.outputs[0].shape, axes), inner)


def _where_constant(view: View) -> Edge | None:
    source = view.graph[view.edge(0).source]
    while isinstance(source.op, ops.Broadcast):
        source = view.graph[source.inputs[0].source]
    op = source.op
    if isinstance(op, ops.Eval) and isinstance(op.value, Truth):
        return view.edge(1) if op.value.value else view.edge(2)
    return None


def _whole_slice(view: View) -> bool:
    return bool(view.op.stride == 1 and view.op.start == 0 and view.op.stop == view.type().shape[view.op.axis])


def _eval_number(view: View) -> Edge | None:
    """A constant expression is a constant."""
    value = view.op.value
    if isinstance(value, Expr) and value.is_constant:
        return view.build.add(ops.Constant("int32", (), np.int32(value.constant).tobytes()))
    return None


def _only_branch(view: View) -> Edge | None:
    """A recurrence with one branch that always applies is that branch."""
    edges = view.node.inputs
    if len(edges) >= 1 and edges[0].condition is TRUE and edges[0].source != view.node.id:
        return edges[0]
    return None


RULES: dict[type[Op], tuple[Rule, ...]] = {
    # -- copies and casts ---------------------------------------------------------------------------------------------
    ops.Identity: (_operand_if(lambda v: True),),  # identity(x) -> x
    ops.Merge: (_only_branch,),  # merge(x if true) -> x
    ops.Cast: (
        _operand_if(lambda v: v.type().dtype == v.op.dtype),  # cast(x: d, d) -> x
        _cast_twice,  # cast(cast(x: bool)) -> cast(x)
    ),
    ops.Eval: (_eval_number,),  # eval(3) -> 3
    # -- arithmetic ---------------------------------------------------------------------------------------------------
    ops.Unary: (_double_negation,),  # neg(neg(x)) -> x
    ops.Binary: (
        _fold_numbers,  # 2 * 3 -> 6
        _binary(
            add=(_neutral(1, 0.0), _neutral(0, 0.0)),  # x + 0, 0 + x -> x
            sub=(_neutral(1, 0.0),),  # x - 0 -> x
            mul=(_neutral(1, 1.0), _neutral(0, 1.0)),  # x * 1, 1 * x -> x
            div=(_neutral(1, 1.0),),  # x / 1 -> x
            pow=(_neutral(1, 1.0),),  # x ** 1 -> x
        ),
    ),
    ops.Where: (_where_constant,),  # where(true, a, b) -> a
    # -- reductions and contractions ----------------------------------------------------------------------------------
    ops.Reduce: (
        _sum_of_broadcast,  # sum(broadcast(x, n)) -> x * n
        _reduce_of_permuted,  # sum(permute(x)) -> permute(sum(x))
        _sum_of_dot_batch,  # sum(dot(a, b; batch k), k) -> dot(a, b; contract k)
        _reduce_reduce,  # sum(sum(x, a), b) -> sum(x, (a, b))
    ),
    ops.Dot: (_dot_of_permuted,),  # dot(permute(a), b) -> dot(a, b)
    # -- views --------------------------------------------------------------------------------------------------------
    ops.Reshape: (
        _operand_if(lambda v: v.type().shape == v.op.shape),  # reshape(x, shape of x) -> x
        _reshape_reshape,  # reshape(reshape(x)) -> reshape(x)
    ),
    ops.Permute: (
        _operand_if(lambda v: v.op.order == tuple(range(len(v.op.order)))),  # permute(x, identity) -> x
        _permute_permute,  # permute(permute(x)) -> permute(x)
    ),
    ops.Broadcast: (
        _operand_if(lambda v: v.type().shape == v.op.shape),  # broadcast(x, shape of x) -> x
        _broadcast_broadcast,  # broadcast(broadcast(x)) -> broadcast(x)
    ),
    ops.Slice: (_operand_if(_whole_slice),),  # slice(x, 0, n) -> x
    ops.Pad: (_operand_if(lambda v: v.op.low == 0 and v.op.high == 0),),  # pad(x, 0, 0) -> x
    ops.Concat: (_operand_if(lambda v: len(v.node.inputs) == 1),),  # concat(x) -> x
    ops.Gather: (
        _gather_all,  # x[0, 1, ..., n - 1] -> x
        _gather_of_broadcast,  # broadcast(x)[i] -> broadcast(x)
    ),
}

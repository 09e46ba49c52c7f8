"""Simplification rules, as data: one row for each rule, with its name and its algebra.

A rule takes a `View` of a node and returns the edge (in the node's own steps) that its readers can read instead, or None. It holds in every
dtype that reaches it, for infinities, NaN, zeros with a sign and the ends of integers, except for what its row states as `up_to`. Each row is
tested on random numbers in all dtypes (`tests/core/passes/test_rules.py`).

`x + 0 -> x` gives up the sign of zero: -0.0 + 0.0 is 0.0, and x is -0.0. XLA has the same rule: a program compiled without ours
gives -0.0 too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tempo_core.ir import ops
from tempo_core.ir.axes import places_of
from tempo_core.ir.builder import literal
from tempo_core.ir.dependence import reached
from tempo_core.ir.graph import Edge, Graph, constant_number, is_identity
from tempo_core.ir.labelled import Labelled, reduced, repeated
from tempo_core.ir.ops import Op
from tempo_core.passes.base import operand_domains, read_at
from tempo_core.passes.clean import gathers, masks, stacks
from tempo_core.passes.clean.view import View
from tempo_core.symbolic.condition import TRUE, Truth
from tempo_core.symbolic.expr import Expr
from tempo_core.symbolic.proof import provably_nonnegative

SIGN_OF_ZERO = "the sign of zero"
ROUNDING = "the rounding of sums and products in another order"


@dataclass(frozen=True)
class Rule:
    """A row: the replacement of an `op`, for the functions `fn` of that op or for all.

    `algebra` is the rule as text, before -> after. `up_to` says in what the value may differ; by default, in nothing. `apply` is the rule.
    """

    name: str
    op: type[Op]
    algebra: str
    apply: Callable[[View], Edge | None]
    fn: tuple[str, ...] = ()
    up_to: str = ""

    def replacement(self, view: View) -> Edge | None:
        return None if self.fn and view.op.fn not in self.fn else self.apply(view)


def _operand(view: View) -> Edge:
    return view.edge()


def _operand_if(condition: Callable[[View], bool]) -> Callable[[View], Edge | None]:
    return lambda view: view.edge() if condition(view) else None


def _without(slot: int, neutral: float) -> Callable[[View], Edge | None]:
    """The other operand, where operand `slot` is the neutral element."""
    return lambda view: view.edge(1 - slot) if view.number(slot) == neutral else None


_FOLDED = {"mul": operator.mul, "div": operator.truediv}


def _fold_numbers(view: View) -> Edge | None:
    a, b = view.number(0), view.number(1)
    dtype = view.node.outputs[0].dtype
    if a is None or b is None or (view.op.fn == "div" and b == 0) or dtype == "bfloat16":
        return None
    left, right = (np.dtype(dtype).type(v) for v in (a, b))
    with np.errstate(all="ignore"):  # overflow wraps around, or is infinite, as it would be when the program runs
        value = np.asarray(_FOLDED[view.op.fn](left, right), dtype=dtype)
    scalar = view.build.add(ops.Constant(dtype, (), value.tobytes()))
    shape = view.node.outputs[0].shape
    return view.build.add(ops.Broadcast(shape, ()), scalar) if shape else scalar


def _of(kind: type[Op], rewrite: Callable[[View, Any, Edge], Edge | None], slot: int = 0) -> Callable[[View], Edge | None]:
    """A rule for nodes whose operand `slot` is an op of a kind: it gets that op, and the edge by which the node would read its operand."""

    def rule(view: View) -> Edge | None:
        inner = view.inner(slot) if isinstance(view.operand(slot), kind) else None
        return None if inner is None else rewrite(view, view.operand(slot), inner)

    return rule


def _permute_permute(view: View, first: ops.Permute, inner: Edge) -> Edge:
    return view.build.add(ops.Permute(tuple(first.order[k] for k in view.op.order)), inner)


def _broadcast_broadcast(view: View, first: ops.Broadcast, inner: Edge) -> Edge:
    return view.build.add(ops.Broadcast(view.op.shape, tuple(view.op.axes[a] for a in first.axes)), inner)


def _reduce_reduce(view: View, first: ops.Reduce, inner: Edge) -> Edge | None:
    kept = [a for a in range(view.graph.edge_rank(inner)) if a not in first.axes]
    axes = tuple(sorted((*first.axes, *(kept[a] for a in view.op.axes))))
    return view.build.add(ops.Reduce(view.op.fn, axes), inner) if first.fn == view.op.fn else None


def _reduce_of_permuted(view: View, first: ops.Permute, inner: Edge) -> Edge:
    """The order of axes does not matter to a reduction over them; the kept axes are permuted after it."""
    reduced = view.build.add(ops.Reduce(view.op.fn, tuple(sorted(first.order[a] for a in view.op.axes))), inner)
    kept = [k for a, k in enumerate(first.order) if a not in view.op.axes]
    return view.build.permuted(reduced, [sorted(kept).index(k) for k in kept])


def _sum_of_dot_batch(view: View) -> Edge | None:
    """A contraction summed over a batch dimension contracts that dimension too: gradients of weights become one product."""
    dot = view.operand()
    if not isinstance(dot, ops.Dot):
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


def _sum_of_scatter_batch(view: View) -> Edge | None:
    """Scatters of a batch, summed over dimensions of the batch, are one scatter: gradients of a table's rows are added to one table."""
    scatter, op, build = view.operand(), view.op, view.build
    if not isinstance(scatter, ops.Scatter) or scatter.fn != "add":
        return None
    summed = tuple(a for a in op.axes if a < scatter.batch)
    updates, places = view.inner(0, 0), view.inner(0, 1)
    if not summed or updates is None or places is None:
        return None
    kept = tuple(a for a in range(scatter.batch) if a not in summed)
    ranks = [view.graph.edge_type(edge).rank for edge in (updates, places)]
    orders = (
        (*kept, *range(scatter.batch, scatter.axis), *summed, *range(scatter.axis, ranks[0])),
        (*kept, *summed, *range(scatter.batch, ranks[1])),
    )
    moved = map(build.permuted, (updates, places), orders)
    total = build.add(ops.Scatter(scatter.axis - len(summed), scatter.size, len(kept)), *moved)
    rest = tuple(a - len(summed) for a in op.axes if a >= scatter.batch)
    return build.add(ops.Reduce("sum", rest), total) if rest else total


def _dot_of_permuted(slot: int) -> Callable[[View], Edge | None]:
    """A contraction reads the operand before its permutation, by other axis numbers, if the order of free axes stays."""
    side = ("left", "right")[slot]

    def rewrite(view: View, first: ops.Permute, inner: Edge) -> Edge | None:
        op, order, inputs = view.op, first.order, list(view.node.inputs)
        free = [order[a] for a in getattr(op, f"{side}_free")(len(order))]
        if free != sorted(free):
            return None
        inputs[slot] = inner
        axes = {name: tuple(order[a] for a in getattr(op, name)) for name in (f"{side}_contract", f"{side}_batch")}
        return view.build.add(replace(op, **axes), *inputs)

    return _of(ops.Permute, rewrite, slot)


def _dot_of_zeros(slot: int) -> Callable[[View], Edge | None]:
    """A contraction with zeros: what is infinite or NaN in the other operand makes NaN, and nothing else is left of it."""

    def rule(view: View) -> Edge | None:
        op, build, shape = view.op, view.build, view.node.outputs[0].shape
        if view.number(slot) != 0 or not op.left_contract:
            return None
        places = places_of(view.graph, view.node)[1 - slot]
        zeros = build.add(ops.Broadcast(view.type(1 - slot).shape, ()), literal(build, view.type(slot).dtype, 0))
        product = build.add(ops.Binary("mul"), zeros, view.edge(1 - slot))
        labels = tuple(places.get(axis, "") for axis in range(view.type(1 - slot).rank))
        return repeated(
            build, reduced(build, "sum", Labelled(product, labels), tuple(places.values())), tuple(range(len(shape))), shape
        )

    return rule


def _gather_shifted(view: View) -> Edge | None:
    """Elements at c, c + 1, ..., c + n - 1, all inside of the axis, are a slice; all elements are the operand itself."""
    index, op = view.operand(1), view.op
    if op.batch or view.type(1).rank != 1:
        return None
    first: int | float | None = 0
    if isinstance(index, ops.Binary) and index.fn == "add":
        start, counted = view.inner(1, 0), view.inner(1, 1)
        if start is None or counted is None:
            return None
        first, index = constant_number(view.graph, start.source), view.graph[counted.source].op
    if not isinstance(index, ops.Iota) or not isinstance(first, int):
        return None
    end, size = index.size + first, view.type(0).shape[op.axis]
    if first == 0 and end == size:
        return view.edge(0)
    fits = first >= 0 and provably_nonnegative(size - end)
    return view.build.add(ops.Slice(op.axis, Expr.of(first), end), view.edge(0)) if fits else None


def _gather_of_where(view: View) -> Edge | None:
    """Elements of a selection, by a condition that is the same along the indexed axis, from a value or one repeated number."""
    chosen, axis = view.operand(0), view.op.axis
    if not isinstance(chosen, ops.Where) or chosen.length is not None or view.type(1).rank != view.op.batch:
        return None
    condition, value, number = (view.inner(0, slot) for slot in range(3))
    if condition is None or value is None or number is None or not provably_nonnegative(view.type(0).shape[axis] - 1):
        return None  # a dimension without elements gives zeros
    mask, filler = view.graph[condition.source].op, view.graph[number.source].op
    if not (isinstance(mask, ops.Broadcast) and axis not in mask.axes and isinstance(filler, ops.Broadcast) and not filler.axes):
        return None
    shape = view.node.outputs[0].shape
    inner = read_at(view.graph[condition.source].inputs[0], view.graph[condition.source].domain, condition)
    scalar = read_at(view.graph[number.source].inputs[0], view.graph[number.source].domain, number)
    if inner is None or scalar is None:
        return None
    spread = view.build.add(ops.Broadcast(shape, tuple(a - (a > axis) for a in mask.axes)), inner)
    elements = view.build.add(view.op, value, view.edge(1))
    return view.build.add(ops.Where(), spread, elements, view.build.add(ops.Broadcast(shape, ()), scalar))


def _gather_of_gather(view: View) -> Edge | None:
    """One element of each of several rows is one element of the whole value, at its row-major number (an int32)."""
    rows, axis, batch = view.operand(0), view.op.axis, view.op.batch
    if not isinstance(rows, ops.Gather) or rows.axis or rows.batch or not batch:
        return None
    value, row = view.inner(0, 0), view.inner(0, 1)
    if value is None or row is None or view.type(1).rank != batch or view.graph.edge_type(row).rank != batch:
        return None
    build, along = view.build, axis - batch + 1  # the axis in `value`
    shape = view.graph.edge_type(value).shape
    if not all(provably_nonnegative(size - 1) for size in (shape[0], shape[along])):
        return None  # a dimension without elements gives zeros
    value = build.permuted(value, (0, along, *(k for k in range(1, len(shape)) if k != along)))
    rest = tuple(size for k, size in enumerate(shape) if k not in (0, along))
    flat = build.add(ops.Reshape((shape[0] * shape[along], *rest)), value)
    places = view.type(1).shape

    def clamped(position: Edge, size: Expr) -> Edge:
        below = build.add(ops.Binary("minimum"), position, build.filled(places, size - 1))
        return build.add(ops.Binary("maximum"), below, build.filled(places, Expr.of(0)))

    first = build.add(ops.Binary("mul"), clamped(row, shape[0]), build.filled(places, shape[along]))
    number = build.add(ops.Binary("add"), first, clamped(view.edge(1), shape[along]))
    return build.add(ops.Gather(0), flat, number)


def _slice_of_permuted(view: View, first: ops.Permute, inner: Edge) -> Edge:
    return view.build.add(first, view.build.add(replace(view.op, axis=first.order[view.op.axis]), inner))


def _slice_of_dot_batch(view: View) -> Edge | None:
    """Some of a batch of products, if nothing else needs the others: the products of some of the operands."""
    dot, op = view.operand(), view.op
    if not isinstance(dot, ops.Dot) or op.axis >= len(dot.left_batch):
        return None
    a, b = view.inner(0, 0), view.inner(0, 1)
    readers = sum(edge.source == view.edge().source for node in view.graph for edge in node.inputs)
    if a is None or b is None or readers > 1:
        return None
    left = view.build.add(replace(op, axis=dot.left_batch[op.axis]), a)
    return view.build.add(dot, left, view.build.add(replace(op, axis=dot.right_batch[op.axis]), b))


def _where_constant(view: View) -> Edge | None:
    truth = view.truth(0)
    return None if truth is None else view.edge(1 if truth else 2)


def _logic_of_constant(view: View) -> Edge | None:
    for slot in range(2):
        truth = view.truth(slot)
        if truth is not None:
            return view.edge(1 - slot if truth == (view.op.fn == "and") else slot)
    return None


def _where_same(view: View) -> Edge | None:
    number = view.number(1)
    return view.edge(1) if view.edge(1) == view.edge(2) or (number is not None and number == view.number(2)) else None


def _whole_slice(view: View) -> bool:
    return bool(view.op.stride == 1 and view.op.start == 0 and view.op.stop == view.type().shape[view.op.axis])


def _eval_number(view: View) -> Edge | None:
    """A constant expression is a constant, and so is a condition that always or never holds."""
    value = view.op.value
    if isinstance(value, Truth):
        return view.build.add(ops.Constant("bool", (), np.bool_(value is TRUE).tobytes()))
    if isinstance(value, Expr) and value.is_constant:
        return view.build.add(ops.Constant("int32", (), np.int32(value.constant).tobytes()))
    return None


def _only_branch(view: View) -> Edge | None:
    """A recurrence with one branch that always applies is that branch, unless it depends on itself: a cycle needs a Merge."""
    edges = view.node.inputs
    if len(edges) >= 1 and edges[0].condition is TRUE and not _depends_on(view.graph, edges[0].source, view.node.id):
        return edges[0]
    return None


def _sum_of_merges(view: View) -> Edge | None:
    """Contributions to a gradient that are zero at the same points are added up where they are not: one contribution a region."""
    merges = [view.graph[edge.source] for edge in view.node.inputs]
    if not all(
        isinstance(merge.op, ops.Merge) and is_identity(e, merge, view.node.domain)
        for merge, e in zip(merges, view.node.inputs, strict=True)
    ):
        return None
    branches = list(zip(*(merge.inputs for merge in merges), strict=False))
    if any(a.condition != b.condition for a, b in branches) or len({len(merge.inputs) for merge in merges}) > 1:
        return None
    numbers = [[constant_number(view.graph, edge.source) for edge in pair] for pair in branches]
    if [0, 0] not in numbers:
        return None
    total = []
    for (a, b), domain, values in zip(branches, operand_domains(merges[0], view.node.domain), numbers, strict=True):
        inside = replace(view.build, domain=domain)
        value = a if values == [0, 0] else inside.add(view.op, replace(a, condition=TRUE), replace(b, condition=TRUE))
        total.append(replace(value, condition=a.condition))
    return view.build.add(ops.Merge(view.node.outputs[0]), *total)


def _depends_on(graph: Graph, node_id: int, other: int) -> bool:
    """Whether a node depends on another through no further Merge."""

    def sources(each: int) -> list[int]:
        return [] if isinstance(graph[each].op, ops.Merge) else [edge.source for edge in graph[each].inputs]

    return other in reached([node_id], sources)


RULES: tuple[Rule, ...] = (
    # -- copies and casts ---------------------------------------------------------------------------------------------
    Rule("identity", ops.Identity, "identity(x) -> x", _operand),
    Rule("merge-of-one", ops.Merge, "merge(x if true, ...) -> x", _only_branch),
    Rule("merge-of-equals", ops.Merge, "merge(x[0] if t == 0, x[t]) -> x", masks.equal_branches),
    Rule("merge-at-own-points", ops.Merge, "merge(x[0] if t == 0, x[t] if t == 2, y) -> merge(x[t] if t == 0, x[t] if t == 2, y)", masks.own_points),
    Rule("eval-number", ops.Eval, "eval(3) -> 3", _eval_number),
    # -- arithmetic ---------------------------------------------------------------------------------------------------
    Rule("fold-mul", ops.Binary, "2 * 3 -> 6", _fold_numbers, fn=("mul",)),
    Rule("fold-div", ops.Binary, "3 / 2 -> 1.5", _fold_numbers, fn=("div",)),
    Rule("sum-of-merges", ops.Binary, "merge(a if c, 0) + merge(b if c, 0) -> merge(a + b if c, 0)", _sum_of_merges, fn=("add",), up_to=SIGN_OF_ZERO),
    Rule("add-zero", ops.Binary, "x + 0 -> x", _without(1, 0), fn=("add",), up_to=SIGN_OF_ZERO),
    Rule("zero-add", ops.Binary, "0 + x -> x", _without(0, 0), fn=("add",), up_to=SIGN_OF_ZERO),
    Rule("sum-of-parts", ops.Binary, "(x if t == 0 else 0) + (y if t > 0 else 0) -> x if t == 0 else y", masks.sum_of_parts, fn=("add",), up_to=SIGN_OF_ZERO),
    Rule("mul-one", ops.Binary, "x * 1 -> x", _without(1, 1), fn=("mul",)),
    Rule("one-mul", ops.Binary, "1 * x -> x", _without(0, 1), fn=("mul",)),
    Rule("pow-one", ops.Binary, "x ** 1 -> x", _without(1, 1), fn=("pow",)),
    Rule("where-same", ops.Where, "where(c, a, a) -> a", _where_same, up_to=SIGN_OF_ZERO),
    Rule("where-constant", ops.Where, "where(true, a, b) -> a", _where_constant),
    Rule("logic-of-constant", ops.Binary, "c & true -> c, c | true -> true", _logic_of_constant, fn=("and", "or")),
    Rule("where-of-outer-product", ops.Where, "where(c, dot(a, b; batch k), 0) -> dot(where(c, a, 0), where(c, b, 0); batch k)", masks.masked_outer_product),
    # -- reductions and contractions ----------------------------------------------------------------------------------
    Rule("reduce-of-permuted", ops.Reduce, "sum(permute(x)) -> permute(sum(x))", _of(ops.Permute, _reduce_of_permuted), up_to=ROUNDING),
    Rule("sum-of-dot-batch", ops.Reduce, "sum(dot(a, b; batch k), k) -> dot(a, b; contract k)", _sum_of_dot_batch, fn=("sum",), up_to=ROUNDING),
    Rule("sum-of-scatter-batch", ops.Reduce, "sum(scatter(x, i; batch k), k) -> scatter(x, i)", _sum_of_scatter_batch, fn=("sum",), up_to=ROUNDING),
    Rule("reduce-reduce", ops.Reduce, "sum(sum(x, a), b) -> sum(x, (a, b))", _of(ops.Reduce, _reduce_reduce), up_to=ROUNDING),
    Rule("reduce-of-stack", ops.Reduce, "max(stack(x, y)) -> maximum(x, y)", stacks.reduced_stack, up_to=ROUNDING),
    Rule("argmax-of-stack", ops.Argmax, "argmax(stack(x, y)) -> where(y <= x or isnan(x), 0, 1)", stacks.position_in_stack),
    Rule("slice-of-stack", ops.Slice, "stack(x, y)[0:1] -> reshape(x)", stacks.slice_of_stack),
    Rule("dot-of-permuted-left", ops.Dot, "dot(permute(a), b) -> dot(a, b)", _dot_of_permuted(0), up_to=ROUNDING),
    Rule("dot-of-permuted-right", ops.Dot, "dot(a, permute(b)) -> dot(a, b)", _dot_of_permuted(1), up_to=ROUNDING),
    Rule("dot-of-zeros-left", ops.Dot, "dot(0, b) -> sum(0 * b)", _dot_of_zeros(0)),
    Rule("dot-of-zeros-right", ops.Dot, "dot(a, 0) -> sum(0 * a)", _dot_of_zeros(1)),
    # -- views --------------------------------------------------------------------------------------------------------
    Rule("reshape-to-itself", ops.Reshape, "reshape(x, shape of x) -> x", _operand_if(lambda v: v.type().shape == v.op.shape)),
    Rule("reshape-reshape", ops.Reshape, "reshape(reshape(x, s), r) -> reshape(x, r)", _of(ops.Reshape, lambda view, _, inner: view.build.add(view.op, inner))),
    Rule("permute-by-nothing", ops.Permute, "permute(x, 0, 1, ...) -> x", _operand_if(lambda v: v.op.order == tuple(range(len(v.op.order))))),
    Rule("permute-permute", ops.Permute, "permute(permute(x, p), q) -> permute(x, p[q])", _of(ops.Permute, _permute_permute)),
    Rule("broadcast-to-itself", ops.Broadcast, "broadcast(x, shape of x) -> x", _operand_if(lambda v: v.type().shape == v.op.shape)),
    Rule("broadcast-broadcast", ops.Broadcast, "broadcast(broadcast(x, s), r) -> broadcast(x, r)", _of(ops.Broadcast, _broadcast_broadcast)),
    Rule("whole-slice", ops.Slice, "x[0:n] -> x", _operand_if(_whole_slice)),
    Rule("slice-of-permuted", ops.Slice, "permute(x)[a:b] -> permute(x[a:b])", _of(ops.Permute, _slice_of_permuted)),
    Rule("slice-of-dot-batch", ops.Slice, "dot(a, b; batch k)[i:j] -> dot(a[i:j], b[i:j]; batch k)", _slice_of_dot_batch, up_to=ROUNDING),
    Rule("gather-of-repeated", ops.Gather, "x[k, i[k]] -> permute(x[..., i]), where x or i is repeated along k", gathers.gather_of_repeated),
    Rule("gather-of-broadcast", ops.Gather, "broadcast(x)[i] -> broadcast(x[i]), or broadcast(x) where it repeats x along i", gathers.gather_of_broadcast),
    Rule("gather-shifted", ops.Gather, "x[c + 0, c + 1, ..., c + n - 1] -> x[c:c + n]", _gather_shifted),
    Rule("gather-of-where", ops.Gather, "where(c, x, 0)[i] -> where(c, x[i], 0)", _gather_of_where),
    Rule("gather-of-gather", ops.Gather, "x[i][k, j[k]] -> reshape(x)[i * n + j]", _gather_of_gather),
)  # fmt: skip


def by_op(rules: Iterable[Rule]) -> dict[type[Op], tuple[Rule, ...]]:
    """The rules of each op, in their order. The first rule that applies is used."""
    table: dict[type[Op], tuple[Rule, ...]] = {}
    for rule in rules:
        table[rule.op] = (*table.get(rule.op, ()), rule)
    return table


BY_OP = by_op(RULES)


_BY_FUNCTION: dict[tuple[type[Op], str], tuple[Rule, ...]] = {}  # those of `BY_OP` for one function of an op, once asked for


def rules_of(op: Op) -> tuple[Rule, ...]:
    """The rules that may apply to an op, in their order."""
    rules, fn = BY_OP.get(type(op), ()), getattr(op, "fn", None)
    if not rules or not isinstance(fn, str):
        return rules
    key = type(op), fn
    if key not in _BY_FUNCTION:
        _BY_FUNCTION[key] = tuple(rule for rule in rules if not rule.fn or fn in rule.fn)
    return _BY_FUNCTION[key]

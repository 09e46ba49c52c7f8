"""Random graphs to which the rules of `passes/clean/rules.py` apply: a function for each rule.

Inputs are numbers that break rules: zeros with a sign, NaN, infinities, the ends of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tempo_core.backends.base import numpy_dtype
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Graph
from tempo_core.ir.types import DTYPES, FLOATS, INTEGERS, TensorType, is_float
from tempo_core.symbolic.condition import TRUE, as_bool, equal
from tempo_core.symbolic.domain import Domain, Point
from tempo_core.symbolic.domain import identity as identity_of
from tempo_core.symbolic.expr import Expr, Symbol

I, t = Symbol("i", "I"), Symbol("t", "T")
BOUNDS = {Symbol("I"): 2, Symbol("T"): 3}
NUMBERS, FOLDED = (*FLOATS, *INTEGERS), tuple(d for d in (*FLOATS, *INTEGERS) if d != "bfloat16")


def special(dtype: str) -> np.ndarray:
    """Numbers that break rules."""
    if dtype == "bool":
        return np.array([True, False])
    if is_float(dtype):
        return np.array([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, np.inf, -np.inf, np.nan]).astype(numpy_dtype(dtype))
    limits = np.iinfo(dtype)
    return np.array([0, 1, 2, 3, 7, limits.min, limits.max, limits.min + 1, limits.max - 1]).astype(dtype)


class Make:
    """Draws a small graph of values of one dtype over the steps i, t. Operands are read at the reader's own point, or mirrored in time."""

    def __init__(self, draw: st.DrawFn, dtype: str = "float32"):
        self.draw, self.dtype, self.graph = draw, dtype, Graph((I, t))

    def sizes(self, rank: int | None = None) -> tuple[Expr, ...]:
        rank = self.draw(st.integers(0, 3)) if rank is None else rank
        return tuple(self.draw(st.sampled_from([Expr.of(1), Expr.of(2), Expr.of(3), t.bound_expr])) for _ in range(rank))

    def input(self, shape: tuple[Expr, ...], dtype: str | None = None, domain: tuple[Symbol, ...] | None = None) -> Edge:
        """An input with a value at each point of some steps."""
        chosen = self.draw(st.sampled_from([(), (t,), (I, t)])) if domain is None else domain
        name = f"x{len(self.graph)}"
        value = self.add(ops.Input(name, dtype or self.dtype, (*(s.bound_expr for s in chosen), *shape)))
        for step in chosen:
            value = self.add(ops.Gather(0), value, self.add(ops.Eval(step.expr)))
        return value

    def moved(self, edge: Edge) -> Edge:
        source = self.graph[edge.source]
        mirrored = t in source.domain and self.draw(st.booleans())
        back = t.bound_expr - 1 - t.expr
        return Edge(edge.source, tuple(Point(back if s == t and mirrored else s.expr) for s in source.domain.steps))

    def add(self, op: ops.Op, *edges: Edge) -> Edge:
        node = self.graph.add(op, edges)
        return Edge(node.id, tuple(Point(s.expr) for s in node.domain.steps))

    def number(self, value: Any, shape: tuple[Expr, ...] = (), dtype: str | None = None) -> Edge:
        scalar = self.add(
            ops.Constant(dtype or self.dtype, (), np.asarray(value).astype(numpy_dtype(dtype or self.dtype)).tobytes())
        )
        return self.add(ops.Broadcast(shape, ()), scalar) if shape else scalar

    def axis(self, shape: tuple[Expr, ...]) -> int:
        return self.draw(st.integers(0, len(shape) - 1))


Draw = Callable[[Make], Edge]


def identity(make: Make) -> Edge:
    return make.add(ops.Identity(make.draw(st.booleans())), make.moved(make.input(make.sizes())))


def only_branch(make: Make) -> Edge:
    shape = make.sizes()
    value, other = make.moved(make.input(shape, domain=(I, t))), make.input(shape, domain=(I, t))
    return make.add(ops.Merge(TensorType(make.dtype, shape)), value, other)


def eval_number(make: Make) -> Edge:
    value = make.draw(st.integers(-(2**31), 2**31 - 1))
    return make.add(ops.Eval(make.draw(st.sampled_from([Expr.of(value), as_bool(value > 0)]))))


def folded(fn: str) -> Draw:
    """A function of two numbers, also special ones; a division by 0 stays, so that a run can report its line."""

    def draw(make: Make) -> Edge:
        among = special(make.dtype)
        values = [make.draw(st.sampled_from(list(among))) for _ in range(2)]
        if fn == "div" and values[1] == 0:
            values[1] = among.dtype.type(3)
        shape = make.sizes()
        return make.add(ops.Binary(fn), *(make.number(v, shape) for v in values))

    return draw


def neutral(fn: str, number: int, slot: int) -> Draw:
    """A function of numbers of all kinds and of one number, which is its operand `slot`."""

    def draw(make: Make) -> Edge:
        shape = make.sizes()
        operands = [make.moved(make.input(shape)), make.number(number, shape)]
        return make.add(ops.Binary(fn), *(operands if slot else operands[::-1]))

    return draw


def where_constant(make: Make) -> Edge:
    shape = make.sizes()
    a, b = (make.moved(make.input(shape)) for _ in range(2))
    return make.add(ops.Where(), make.number(make.draw(st.booleans()), shape, "bool"), a, b)


def logic_of_constant(make: Make) -> Edge:
    shape, fn = make.sizes(), make.draw(st.sampled_from(["and", "or"]))
    operands = [make.moved(make.input(shape, "bool")), make.number(make.draw(st.booleans()), shape, "bool")]
    return make.add(ops.Binary(fn), *make.draw(st.permutations(operands)))


def either_of_the_same(make: Make) -> Edge:
    """A choice between a value and itself, or between two equal numbers."""
    shape = make.sizes()
    value = make.moved(make.input(shape))
    of_numbers = make.dtype in FOLDED and make.draw(st.booleans())
    both = (make.number(1, shape), make.number(1, shape)) if of_numbers else (value, value)
    return make.add(ops.Where(), make.moved(make.input(shape, "bool")), *both)


def sum_of_merges(make: Make) -> Edge:
    """Contributions that are zero at the same points."""
    shape, condition = make.sizes(), make.draw(st.sampled_from([t.expr >= 1, I.expr == 0, (I.expr >= 1) & (t.expr >= 1)]))

    def merge() -> Edge:
        branches = replace(make.moved(make.input(shape)), condition=condition), make.number(0, shape)
        node = make.graph.add(ops.Merge(TensorType(make.dtype, shape)), branches, domain=Domain((I, t)))
        return Edge(node.id, identity_of(node.domain))

    return make.add(ops.Binary("add"), merge(), merge())


def drawn_dot(make: Make, batch: int) -> Edge:
    """A contraction of permuted operands, with `batch` batch axes, one contracted and up to one free axis on each side."""
    shared, contracted = make.sizes(batch), make.sizes(1)
    operands, places = [], []
    for _ in range(2):
        free = make.sizes(make.draw(st.integers(0, 1)))
        shape = (*shared, *contracted, *free)
        order = make.draw(st.permutations(range(len(shape))))
        operands.append(make.moved(make.input(tuple(shape[k] for k in order))))
        places.append([order.index(k) for k in range(len(shape))])
    (left, right) = places
    return make.add(ops.Dot((left[batch],), (right[batch],), tuple(left[:batch]), tuple(right[:batch])), *operands)


def reductions(make: Make) -> list[str]:
    """The functions of the dtype under test."""
    return ["any", "all", "max", "min"] if make.dtype == "bool" else ["sum", "prod", "max", "min"]


def reduce_of_permuted(make: Make) -> Edge:
    fn = make.draw(st.sampled_from(reductions(make)))
    shape = make.sizes(make.draw(st.integers(1, 4)))
    order = tuple(make.draw(st.permutations(range(len(shape)))))
    axes = make.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    turned = make.add(ops.Permute(order), make.moved(make.input(shape)))
    return make.add(ops.Reduce(fn, tuple(sorted(axes))), make.moved(turned))


def sum_of_dot_batch(make: Make) -> Edge:
    batch = make.draw(st.integers(1, 2))
    product = drawn_dot(make, batch)
    rank = make.graph.edge_type(product).rank
    axes = make.draw(st.sets(st.integers(0, rank - 1), min_size=1).filter(lambda some: any(a < batch for a in some)))
    return make.add(ops.Reduce("sum", tuple(sorted(axes))), make.moved(product))


def reduce_reduce(make: Make) -> Edge:
    fn = make.draw(st.sampled_from(reductions(make)))
    shape = make.sizes(make.draw(st.integers(2, 4)))
    first = sorted(make.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1)))
    second = sorted(make.draw(st.sets(st.integers(0, len(shape) - len(first) - 1), min_size=1)))
    x = make.input(shape)
    return make.add(ops.Reduce(fn, tuple(second)), make.moved(make.add(ops.Reduce(fn, tuple(first)), make.moved(x))))


def dot_of_permuted(slot: int) -> Draw:
    """The permutation keeps the order of the free axes: here there is at most one on each side."""

    def draw(make: Make) -> Edge:
        dot = drawn_dot(make, make.draw(st.integers(0, 2)))
        node = make.graph[dot.source]
        assert isinstance(node.op, ops.Dot)
        order = tuple(make.draw(st.permutations(range(make.graph.edge_type(node.inputs[slot]).rank))))
        operands = list(node.inputs)
        operands[slot] = make.moved(make.add(ops.Permute(order), node.inputs[slot]))
        axes = [[node.op.left_contract, node.op.left_batch], [node.op.right_contract, node.op.right_batch]]
        axes[slot] = [tuple(order.index(k) for k in some) for some in axes[slot]]
        ((left, left_batch), (right, right_batch)) = axes
        return make.add(ops.Dot(left, right, left_batch, right_batch), *operands)

    return draw


def dot_of_zeros(slot: int) -> Draw:
    """A contraction of at least one axis, of numbers of all kinds and of zeros."""

    def draw(make: Make) -> Edge:
        node = make.graph[drawn_dot(make, make.draw(st.integers(0, 2))).source]
        assert isinstance(node.op, ops.Dot)
        operands = list(node.inputs)
        operands[slot] = make.number(0, make.graph.edge_type(node.inputs[slot]).shape)
        operands[1 - slot] = make.moved(node.inputs[1 - slot])
        return make.add(node.op, *operands)

    return draw


def reshape_to_itself(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Reshape(shape), make.moved(make.input(shape)))


def reshape_reshape(make: Make) -> Edge:
    shape = make.sizes()
    flat = make.add(ops.Reshape((ops.product(shape),)), make.moved(make.input(shape)))
    return make.add(ops.Reshape((*reversed(shape), Expr.of(1))), make.moved(flat))


def permute_by_nothing(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Permute(tuple(range(len(shape)))), make.moved(make.input(shape)))


def permute_permute(make: Make) -> Edge:
    """Two permutations, neither of them the identity, which an earlier row handles."""
    shape = make.sizes(3)
    orders = st.permutations(range(3)).map(tuple).filter(lambda order: order != (0, 1, 2))
    return make.add(
        ops.Permute(make.draw(orders)), make.moved(make.add(ops.Permute(make.draw(orders)), make.moved(make.input(shape))))
    )


def broadcast_to_itself(make: Make) -> Edge:
    shape = make.sizes()
    return make.add(ops.Broadcast(shape, tuple(range(len(shape)))), make.moved(make.input(shape)))


def broadcast_broadcast(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(2, 4)))
    first = sorted(make.draw(st.sets(st.integers(0, len(shape) - 1), max_size=len(shape) - 1)))
    second = sorted(make.draw(st.sets(st.sampled_from(first)))) if first else []
    x = make.input(tuple(shape[a] for a in second))
    inner = make.add(ops.Broadcast(tuple(shape[a] for a in first), tuple(first.index(a) for a in second)), make.moved(x))
    return make.add(ops.Broadcast(shape, tuple(first)), make.moved(inner))


def whole_slice(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    axis = make.axis(shape)
    return make.add(ops.Slice(axis, Expr.of(0), shape[axis]), make.moved(make.input(shape)))


def gather_shifted(make: Make) -> Edge:
    """From position 0 (a plain count) or later, and up to the end of the axis or not."""
    shape = make.sizes(make.draw(st.integers(1, 3)))
    axis, first, rest = make.axis(shape), make.draw(st.integers(0, 2)), make.draw(st.integers(0, 2))
    longer = tuple(size + (first + rest) * (k == axis) for k, size in enumerate(shape))
    index = make.add(ops.Iota(shape[axis]))
    if first:
        index = make.add(ops.Binary("add"), make.number(first, (shape[axis],), "int32"), index)
    return make.add(ops.Gather(axis), make.moved(make.input(longer)), index)


def element_of_each(make: Make, value: Edge, batch: tuple[Expr, ...], axis: int) -> Edge:
    """One element along an axis after the batch dimensions, for each point of these dimensions."""
    return make.add(ops.Gather(axis, len(batch)), make.moved(value), make.moved(make.input(batch, "int32")))


def gather_of_where(make: Make) -> Edge:
    batch, rest = make.sizes(make.draw(st.integers(0, 2))), make.sizes(make.draw(st.integers(1, 2)))
    shape, axis = (*batch, *rest), len(batch) + make.axis(rest)
    kept = tuple(k for k in range(len(shape)) if k != axis and make.draw(st.booleans()))
    mask = make.add(ops.Broadcast(shape, kept), make.moved(make.input(tuple(shape[k] for k in kept), "bool")))
    chosen = make.add(ops.Where(), mask, make.moved(make.input(shape)), make.number(0, shape))
    return element_of_each(make, chosen, batch, axis)


def gather_of_broadcast(make: Make) -> Edge:
    """One element or several, from an axis of the value or one along which it repeats."""
    shape, index = make.sizes(make.draw(st.integers(1, 3))), make.sizes(make.draw(st.integers(0, 2)))
    kept = tuple(k for k in range(len(shape)) if make.draw(st.booleans()))[: len(shape) - 1]
    value = make.add(ops.Broadcast(shape, kept), make.moved(make.input(tuple(shape[k] for k in kept))))
    return make.add(ops.Gather(make.axis(shape)), make.moved(value), make.moved(make.input(index, "int32")))


def gather_of_gather(make: Make) -> Edge:
    batch, rest = make.sizes(make.draw(st.integers(1, 2))), make.sizes(make.draw(st.integers(1, 2)))
    value = make.input((*make.sizes(1), *rest))
    rows = make.add(ops.Gather(0), make.moved(value), make.moved(make.input(batch, "int32")))
    return element_of_each(make, rows, batch, len(batch) + make.axis(rest))


def sum_of_scatter_batch(make: Make) -> Edge:
    batch, before, wide, after = (make.sizes(make.draw(st.integers(k, 2))) for k in (1, 0, 0, 0))
    updates, places = make.input((*batch, *before, *wide, *after)), make.input((*batch, *wide), "int32")
    scatter = ops.Scatter(len(batch) + len(before), make.sizes(1)[0], len(batch))
    others = range(len(batch), len(batch) + len(before) + 1 + len(after))
    summed = sorted(make.draw(st.sets(st.integers(0, len(batch) - 1), min_size=1)))
    axes = (*summed, *(k for k in others if make.draw(st.booleans())))
    return make.add(ops.Reduce("sum", axes), make.add(scatter, make.moved(updates), make.moved(places)))


def part(make: Make, value: Edge, axis: int, size: Expr) -> Edge:
    stop = make.draw(st.sampled_from([Expr.of(1), size]))
    return make.add(ops.Slice(axis, make.draw(st.sampled_from([Expr.of(0), stop - 1])), stop), make.moved(value))


def slice_of_permuted(make: Make) -> Edge:
    shape = make.sizes(make.draw(st.integers(1, 3)))
    order = tuple(make.draw(st.permutations(range(len(shape)))))
    axis = make.axis(shape)
    return part(make, make.add(ops.Permute(order), make.moved(make.input(shape))), axis, shape[order[axis]])


def slice_of_dot_batch(make: Make) -> Edge:
    batch, n, contracted = make.sizes(1)[0], make.sizes(1), make.draw(st.booleans())
    k = (Expr.of(2),) if contracted else ()
    left, right = make.moved(make.input((*n, batch, *k))), make.moved(make.input((batch, *k, *make.sizes(1))))
    dot = ops.Dot((2,), (1,), (1,), (0,)) if contracted else ops.Dot((), (), (1,), (0,))
    return part(make, make.add(dot, left, right), 0, batch)


def stack(make: Make, dtype: str | None = None) -> tuple[Edge, int]:
    """Values of one element along an axis, one after the other along it, or a selection between them and another value; and the axis."""
    shape = make.sizes(make.draw(st.integers(0, 2)))
    axis, count = make.draw(st.integers(0, len(shape))), make.draw(st.integers(1, 4))
    unit, whole = ((*shape[:axis], Expr.of(size), *shape[axis:]) for size in (1, count))
    value = make.moved(make.add(ops.Concat(axis), *(make.moved(make.input(unit, dtype)) for _ in range(count))))
    if make.draw(st.booleans()):
        axes = make.draw(st.sampled_from([tuple(k for k in range(len(whole)) if k != axis), tuple(range(len(whole)))]))
        condition = make.add(ops.Broadcast(whole, axes), make.input(tuple(whole[k] for k in axes), "bool"))
        value = make.add(ops.Where(), condition, value, make.input(whole, dtype))
    return value, axis


def reduce_of_stack(make: Make) -> Edge:
    value, axis = stack(make)
    rank = make.graph.edge_type(value).rank
    axes = sorted({axis, *make.draw(st.sets(st.integers(0, rank - 1)))})
    return make.add(ops.Reduce(make.draw(st.sampled_from(reductions(make))), tuple(axes)), value)


def argmax_of_stack(make: Make) -> Edge:
    value, axis = stack(make)
    return make.add(ops.Argmax(axis), value)


def slice_of_stack(make: Make) -> Edge:
    value, axis = stack(make)
    size = make.graph.edge_type(value).shape[axis]
    first = make.draw(st.integers(0, size.constant - 1))
    return make.add(ops.Slice(axis, Expr.of(first), Expr.of(first + 1)), value)


def first_and_later(make: Make, shape: tuple[Expr, ...]) -> tuple[Edge, Edge]:
    """A value at the first point of t, and the same value at the later ones."""
    later = make.moved(make.input(shape, domain=(I, t)))
    return replace(later.substitute({t: 0}), condition=equal(t.expr, Expr.of(0))), replace(later, condition=t.expr >= 1)


def equal_branches(make: Make) -> Edge:
    shape = make.sizes()
    first, later = first_and_later(make, shape)
    always, between = make.draw(st.booleans()), [make.input(shape, domain=(I,))] if make.draw(st.booleans()) else []
    others = [replace(edge, condition=I.expr >= 1) for edge in between]
    return make.add(ops.Merge(TensorType(make.dtype, shape)), *others, first, replace(later, condition=TRUE) if always else later)


def own_points(make: Make) -> Edge:
    """A value that stays at the first and the last point of t, or at the first points of both steps, and another one elsewhere."""
    shape = make.sizes()
    value, other = make.moved(make.input(shape, domain=(I, t))), make.input(shape, domain=(I, t))
    last = t.bound_expr - 1
    value = replace(value, index=tuple(Point(s.expr) for s in (I, t)))
    places = make.draw(st.permutations([(t, Expr.of(0)), (t, last), (I, Expr.of(0))]))
    kept = [replace(value.substitute({step: at}), condition=equal(step.expr, at)) for step, at in places[:2]]
    return make.add(ops.Merge(TensorType(make.dtype, shape)), *kept, other)


def sum_of_parts(make: Make) -> Edge:
    shape = make.sizes()
    type, parts = TensorType(make.dtype, shape), make.draw(st.permutations(first_and_later(make, shape)))
    return make.add(ops.Binary("add"), *(make.add(ops.Merge(type), part, make.number(0, shape)) for part in parts))


def masked_outer_product(make: Make) -> Edge:
    n, b, k, m = (make.sizes(1)[0] for _ in range(4))
    left, right = make.moved(make.input((n, b, k))), make.moved(make.input((b, n, m)))
    in_order = make.draw(st.booleans())  # the mask varies with one shared dimension, which lies elsewhere in the other operand
    product = make.add(ops.Dot((), (), (0, 1), (1, 0)), left, right)
    shape, axis = (n, b, k, m), make.draw(st.integers(0, 1))
    if not in_order:
        shape, product, axis = (k, b, n, m), make.add(ops.Permute((2, 1, 0, 3)), product), make.draw(st.integers(1, 2))
    mask = make.add(ops.Broadcast(shape, (axis,)), make.moved(make.input((shape[axis],), "bool")))
    return make.add(ops.Where(), mask, make.moved(product), make.number(0, shape))


def partly_repeated(
    make: Make, batch: tuple[Expr, ...], rest: tuple[Expr, ...], kept: tuple[int, ...], dtype: str | None = None
) -> Edge:
    """A value that varies along some of its shared dimensions, and along some of the others or all."""
    others = tuple(k for k in range(len(batch), len(batch) + len(rest)) if make.draw(st.booleans()) or make.draw(st.booleans()))
    shape, axes = (*batch, *rest), (*kept, *others)
    return make.add(ops.Broadcast(shape, axes), make.moved(make.input(tuple(shape[k] for k in axes), dtype)))


def gather_of_repeated(make: Make) -> Edge:
    batch, rest, places = make.sizes(make.draw(st.integers(1, 3))), make.sizes(make.draw(st.integers(1, 2))), make.sizes()
    repeated = make.draw(st.lists(st.integers(0, 3), min_size=len(batch), max_size=len(batch)).filter(any))
    varying = [
        tuple(b for b, how in enumerate(repeated) if not how & bit) for bit in (1, 2)
    ]  # along which x varies, and the index
    x = partly_repeated(make, batch, rest, varying[0])
    index = partly_repeated(make, batch, places, varying[1], "int32")
    return make.add(ops.Gather(len(batch) + make.axis(rest), len(batch)), make.moved(x), make.moved(index))


@dataclass(frozen=True)
class Generator:
    """A function that draws a graph to which a rule applies, and the dtypes for which it does; other dtypes have no such graph."""

    draw: Draw
    dtypes: tuple[str, ...] = DTYPES


# One generator for each row of `RULES`, under its name.
GENERATORS: dict[str, Generator] = {
    "identity": Generator(identity),
    "merge-of-one": Generator(only_branch),
    "merge-of-equals": Generator(equal_branches),
    "merge-at-own-points": Generator(own_points),
    "eval-number": Generator(eval_number),
    "fold-mul": Generator(folded("mul"), FOLDED),
    "fold-div": Generator(folded("div"), tuple(d for d in FLOATS if d in FOLDED)),
    "add-zero": Generator(neutral("add", 0, 1), FOLDED),
    "zero-add": Generator(neutral("add", 0, 0), FOLDED),
    "sum-of-parts": Generator(sum_of_parts, FOLDED),
    "where-of-outer-product": Generator(masked_outer_product, FOLDED),
    "gather-of-repeated": Generator(gather_of_repeated),
    "mul-one": Generator(neutral("mul", 1, 1), FOLDED),
    "one-mul": Generator(neutral("mul", 1, 0), FOLDED),
    "pow-one": Generator(neutral("pow", 1, 1), FOLDED),
    "where-same": Generator(either_of_the_same),
    "where-constant": Generator(where_constant),
    "logic-of-constant": Generator(logic_of_constant),
    "sum-of-merges": Generator(sum_of_merges, FOLDED),
    "reduce-of-permuted": Generator(reduce_of_permuted),
    "sum-of-dot-batch": Generator(sum_of_dot_batch, NUMBERS),
    "reduce-of-stack": Generator(reduce_of_stack),
    "argmax-of-stack": Generator(argmax_of_stack),
    "slice-of-stack": Generator(slice_of_stack),
    "reduce-reduce": Generator(reduce_reduce),
    "dot-of-permuted-left": Generator(dot_of_permuted(0), NUMBERS),
    "dot-of-permuted-right": Generator(dot_of_permuted(1), NUMBERS),
    "dot-of-zeros-left": Generator(dot_of_zeros(0), FOLDED),
    "dot-of-zeros-right": Generator(dot_of_zeros(1), FOLDED),
    "reshape-to-itself": Generator(reshape_to_itself),
    "reshape-reshape": Generator(reshape_reshape),
    "permute-by-nothing": Generator(permute_by_nothing),
    "permute-permute": Generator(permute_permute),
    "broadcast-to-itself": Generator(broadcast_to_itself),
    "broadcast-broadcast": Generator(broadcast_broadcast),
    "whole-slice": Generator(whole_slice),
    "sum-of-scatter-batch": Generator(sum_of_scatter_batch, NUMBERS),
    "slice-of-permuted": Generator(slice_of_permuted),
    "slice-of-dot-batch": Generator(slice_of_dot_batch, NUMBERS),
    "gather-of-broadcast": Generator(gather_of_broadcast),
    "gather-shifted": Generator(gather_shifted),
    "gather-of-where": Generator(gather_of_where),
    "gather-of-gather": Generator(gather_of_gather),
}

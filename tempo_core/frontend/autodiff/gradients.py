"""Gradient rules (vector-Jacobian products), one row for each op.

A rule takes (op, operands, results, gradients of the results) and gives one contribution for each operand: a tensor of the operand's
type, or None if no gradient flows. The functions inside `Unary` and `Binary` have rows of their own, in `frontend/autodiff/slopes.py`.
`CONSTANT` names the ops that are constants to differentiation, with the reason. A gradient through an op of neither table is a
GradientError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import tempo_core.frontend.functions as fn
from tempo_core.frontend.autodiff.slopes import NoGradient, Zero, slope_of
from tempo_core.frontend.inputs import udf
from tempo_core.frontend.tensor import Tensor, apply, pad_axis
from tempo_core.ir import ops
from tempo_core.ir.axes import operand_labels
from tempo_core.ir.labelled import Labels, contraction
from tempo_core.ir.types import is_float
from tempo_core.ir.udf import Pullback
from tempo_core.symbolic.expr import Expr, minimum
from tempo_core.symbolic.proof import provably_nonnegative

Tensors: TypeAlias = Sequence[Tensor]
Rule: TypeAlias = "Callable[[Any, Sequence[Tensor], Sequence[Tensor], Sequence[Any]], Sequence[Any]]"


def _unary(op: ops.Unary, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    slope: Any = slope_of(op)
    return (None if isinstance(slope, Zero) else slope(gradients[0], operands[0], results[0]),)


def _binary(op: ops.Binary, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    slopes: Any = slope_of(op)
    return (None, None) if isinstance(slopes, Zero) else slopes(gradients[0], *operands, results[0])


def _where(op: ops.Where, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    condition, (g,) = operands[0], gradients
    return None, fn.where(condition, g, 0), fn.where(condition, 0, g)


def _cast(op: ops.Cast, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.cast(gradients[0], operands[0].dtype) if is_float(operands[0].dtype) else None,)


def _identity(op: ops.Identity, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (None if op.stop_gradient else gradients[0],)


def _spread(x: Tensor, like: Tensor, axes: tuple[int, ...]) -> Tensor:
    """`x`, which lacks `axes`, repeated along them to the shape of `like`."""
    kept = tuple(a for a in range(like.rank) if a not in axes)
    return apply(ops.Broadcast(like.type.shape, kept), x)


def _reduce(op: ops.Reduce, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    rule = REDUCE[op.fn]
    return (None if isinstance(rule, Zero) else rule(gradients[0], operands[0], results[0], op.axes),)


def _extreme(g: Tensor, x: Tensor, y: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Equal extremes share the gradient."""
    is_extreme = fn.cast(fn.equal(x, _spread(y, x, axes)), g.dtype)
    return _spread(g / fn.sum(is_extreme, axes), x, axes) * is_extreme


REDUCE: Mapping[str, Callable[[Tensor, Tensor, Tensor, tuple[int, ...]], Tensor] | Zero] = {
    "sum": lambda g, x, y, axes: _spread(g, x, axes),
    "prod": lambda g, x, y, axes: _product_of_others(x, axes) * _spread(g, x, axes),
    "max": _extreme,
    "min": _extreme,
    "any": Zero("its result is a bool"),
    "all": Zero("its result is a bool"),
}


def _product_of_others(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    """For each element the product of the others along `axes`: of those before it and those after it. Division would fail at 0."""
    *outer, axis = axes
    products = []
    for reverse in (False, True):
        last = fn.evaluate(x.type.shape[axis] - 1 if reverse else Expr.of(0))
        edge = apply(ops.Broadcast(x.type.shape, (axis,)), fn.equal(fn.arange(x.type.shape[axis]), last))
        products.append(fn.where(edge, 1, _shifted(fn.cumprod(x, axis, reverse), axis, backwards=reverse)))
    others = products[0] * products[1]
    if not outer:
        return others
    return others * _spread(_product_of_others(apply(ops.Reduce("prod", (axis,)), x), tuple(outer)), x, (axis,))


def _cumsum(op: ops.CumSum, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.cumsum(gradients[0], op.axis, not op.reverse),)


def _cummax(op: ops.CumMax, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """The gradients of a running maximum, from its first position up to the next maximum, go to the element at that position."""
    (x,), (y,), (g,) = operands, results, gradients
    before = _shifted(y, op.axis, backwards=op.reverse)
    size = x.type.shape[op.axis]
    end = apply(
        ops.Broadcast(x.type.shape, (op.axis,)), fn.equal(fn.arange(size), fn.evaluate(size - 1 if op.reverse else Expr.of(0)))
    )
    is_new_maximum = fn.cast(fn.logical_or(end, fn.greater(x, before)), g.dtype)
    until_next = _shifted(1 - is_new_maximum, op.axis, backwards=not op.reverse)
    return (is_new_maximum * fn.linear_scan(until_next, g, op.axis, not op.reverse),)


def _linear_scan(op: ops.LinearScan, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """h = ∂b obeys the scan in the other direction with the coefficients moved by one; ∂c[k] = h[k] * y[k - 1]."""
    (c, _), (y,), (g,) = operands, results, gradients
    next_coefficients = _shifted(c, op.axis, backwards=not op.reverse)
    h = fn.linear_scan(next_coefficients, g, op.axis, not op.reverse)
    return h * _shifted(y, op.axis, backwards=op.reverse), h


def _shifted(x: Tensor, axis: int, backwards: bool) -> Tensor:
    """`x[k + 1]` (backwards) or `x[k - 1]` at k; zero where there is no such element."""
    size = x.type.shape[axis]
    one = Expr.of(1) if provably_nonnegative(size - 1) else minimum(size, 1)  # of no elements, none is cut off
    if backwards:
        return pad_axis(apply(ops.Slice(axis, one, size), x), axis, 0, one)
    return pad_axis(apply(ops.Slice(axis, Expr.of(0), size - one), x), axis, one, 0)


def _discounted_sum(op: ops.DiscountedSum, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    (x,), (g,) = operands, gradients
    size = x.type.shape[op.axis]
    weights = fn.power(fn.constant(op.gamma, x.dtype), fn.cast(fn.arange(size), x.dtype))
    return (_spread(g, x, (op.axis,)) * apply(ops.Broadcast(x.type.shape, (op.axis,)), weights),)


def _dot(op: ops.Dot, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """Both gradients are contractions of `g` with the other operand."""
    (a, b), (g,) = operands, gradients
    shapes, of_g = [a.type.shape, b.type.shape], tuple(range(g.rank))
    of_a, of_b = operand_labels(op, shapes, g.type.shape, of_g, range(g.rank, g.rank + len(op.left_contract)))
    return _contracted(g, of_g, b, of_b, of_a), _contracted(g, of_g, a, of_a, of_b)


def _contracted(g: Tensor, of_g: Labels, x: Tensor, of_x: Labels, wanted: Labels) -> Tensor:
    """The contraction of values whose dimensions have labels, with the labels `wanted` in their order."""
    op, labels = contraction(of_g, of_x, tuple(label for label in of_g if label in of_x and label not in wanted))
    return fn.transpose(apply(op, g, x), *(labels.index(label) for label in wanted)) if wanted else apply(op, g, x)


def _conv(op: ops.Conv, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """Both gradients are convolutions: strides become distances between elements, and the other way around."""
    (x, w), (g,) = operands, gradients
    n, before = op.spatial, x.rank - op.spatial - 1
    sizes, kernel, out = x.type.shape[before:-1], w.type.shape[:n], g.type.shape[before:-1]
    batch, space = ops.product(x.type.shape[:before]), tuple(range(n))
    channels, features = w.type.shape[n], w.type.shape[-1] // op.groups

    # For x: g, spread out, convolved with the flipped kernel, whose channels and features are exchanged within each group.
    flipped = fn.reshape(fn.flip(w, space), (*kernel, channels, op.groups, features))
    flipped = fn.reshape(fn.transpose(flipped, *space, n + 2, n + 1, n), (*kernel, features, op.groups * channels))
    low = tuple(op.extent(k, kernel[k]) - 1 - op.low[k] for k in space)
    to_x = replace(op, strides=op.spread, spread=op.strides, low=low)
    to_x = replace(to_x, high=tuple(to_x.high_for(k, out[k], kernel[k], sizes[k]) for k in space))

    # For w: x convolved with g as the kernel; a group's channels act as the batch, and the batch is summed like channels.
    of_x = fn.reshape(x, (batch, *sizes, op.groups, channels))
    of_x = fn.reshape(fn.transpose(of_x, n + 2, *(k + 1 for k in space), n + 1, 0), (channels, *sizes, op.groups * batch))
    of_g = fn.transpose(fn.reshape(g, (batch, *out, w.type.shape[-1])), *(k + 1 for k in space), 0, n + 1)
    to_w = replace(op, strides=op.dilation, dilation=op.strides)
    to_w = replace(to_w, high=tuple(to_w.high_for(k, sizes[k], out[k], kernel[k]) for k in space))
    return apply(to_x, g, flipped), fn.transpose(apply(to_w, of_x, of_g), *(k + 1 for k in space), 0, n + 1)


def _reshape(op: ops.Reshape, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.reshape(gradients[0], operands[0].type.shape),)


def _permute(op: ops.Permute, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.transpose(gradients[0], *(op.order.index(k) for k in range(len(op.order)))) if op.order else gradients[0],)


def _broadcast(op: ops.Broadcast, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.sum(gradients[0], tuple(a for a in range(len(op.shape)) if a not in op.axes)),)


def _slice(op: ops.Slice, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    (x,), (g,) = operands, gradients
    if op.stride == 1:
        # Where the slice reached past the end the amount is negative, which cuts.
        return (apply(ops.Pad(op.axis, op.start, x.type.shape[op.axis] - op.stop), g),)
    return (
        fn.scatter_add(g, fn.evaluate(op.start) + fn.arange(g.type.shape[op.axis]) * op.stride, x.type.shape[op.axis], op.axis),
    )


def _pad(op: ops.Pad, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    (x,), (g,) = operands, gradients
    return (apply(ops.Slice(op.axis, op.low, op.low + x.type.shape[op.axis]), g),)


def _concat(op: ops.Concat, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    start, parts = Expr.of(0), []
    for x in operands:
        stop = start + x.type.shape[op.axis]
        parts.append(apply(ops.Slice(op.axis, start, stop), gradients[0]))
        start = stop
    return parts


def _flip(op: ops.Flip, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    return (fn.flip(gradients[0], op.axis),)


def _gather(op: ops.Gather, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    x, positions = operands
    last, at = x.type.shape[op.axis] - 1, positions.node.op.value if isinstance(positions.node.op, ops.Eval) else None
    is_inside = isinstance(at, Expr) and provably_nonnegative(at) and provably_nonnegative(last - at)
    if not is_inside:  # positions outside are those of the ends
        positions = apply(ops.Binary("minimum"), positions, fn.broadcast_to(fn.evaluate(last), positions.type.shape))
        positions = apply(ops.Binary("maximum"), positions, fn.broadcast_to(fn.constant(0, "int32"), positions.type.shape))
    return apply(ops.Scatter(op.axis, x.type.shape[op.axis], op.batch), gradients[0], positions), None


def _scatter(op: ops.Scatter, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """Each update's share of the gradient at its position; of equal extremes, the shares are equal."""
    (updates, positions), (y,), (g,) = operands, results, gradients
    wide = positions.rank - op.batch
    axes = tuple(range(op.batch)) + tuple(range(op.axis, op.axis + wide))
    inside = apply(ops.Broadcast(updates.type.shape, axes), (positions >= 0) & (positions < op.size))

    def at_positions(x: Tensor) -> Tensor:
        return fn.where(inside, apply(ops.Gather(op.axis, op.batch), x, positions), 0)  # updates outside were dropped

    if op.fn == "add":
        return at_positions(g), None
    if op.fn == "mul":
        return at_positions(g) * _product_of_others_there(updates, positions, op.axis), None
    is_extreme = fn.cast(fn.equal(updates, at_positions(y)), g.dtype)
    count = apply(replace(op, fn="add"), is_extreme, positions)
    return at_positions(g / fn.where(count > 0, count, 1)) * is_extreme, None


def _product_of_others_there(updates: Tensor, positions: Tensor, axis: int) -> Tensor:
    """For each update the product of the others with its position: in the order of positions, of those before it and those after it."""
    shape, end = updates.type.shape, axis + positions.rank
    count = ops.product(positions.type.shape)
    places = fn.reshape(positions, (count,))
    order = fn.argsort(places)
    ordered = fn.take(fn.reshape(updates, (*shape[:axis], count, *shape[end:])), order, axis)
    numbers, products = fn.take(places, order), fn.ones_like(ordered)
    for reverse in (False, True):
        is_same = fn.equal(
            _shifted(numbers + 1, 0, backwards=reverse), numbers + 1
        )  # at the end 0, for which nothing was scattered
        is_same = apply(ops.Broadcast(ordered.type.shape, (axis,)), is_same)
        factors = fn.where(is_same, _shifted(ordered, axis, backwards=reverse), 0)
        products = products * fn.linear_scan(factors, fn.where(is_same, fn.zeros_like(ordered), 1), axis, reverse)
    return fn.reshape(fn.take(products, fn.argsort(order), axis), shape)


def _udf(op: ops.Udf, operands: Tensors, results: Tensors, gradients: Tensors) -> Sequence[Any]:
    """JAX differentiates functions that it can trace. Host functions and stateful functions are constants."""
    if op.kind != "jax" or op.stateful:
        return [None] * len(operands)
    floats = tuple(k for k, x in enumerate(operands) if is_float(x.dtype))
    slots = tuple(k for k, g in enumerate(gradients) if g is not None)
    pullback = Pullback(op.fn, len(operands), floats, slots)
    contributions = udf(
        pullback,
        *operands,
        *(gradients[k] for k in slots),
        outputs=[operands[k].type for k in floats],
        name=f"{op.name}_gradient",
    )
    by_slot = dict(zip(floats, contributions, strict=True))
    return [by_slot.get(k) for k in range(len(operands))]


GRADIENTS: dict[type[ops.Op], Rule] = {
    ops.Unary: _unary, ops.Binary: _binary, ops.Where: _where, ops.Cast: _cast, ops.Identity: _identity, ops.Reduce: _reduce,
    ops.CumSum: _cumsum, ops.CumMax: _cummax, ops.LinearScan: _linear_scan, ops.DiscountedSum: _discounted_sum, ops.Dot: _dot, ops.Conv: _conv,
    ops.Reshape: _reshape, ops.Permute: _permute, ops.Broadcast: _broadcast, ops.Slice: _slice, ops.Pad: _pad,
    ops.Concat: _concat, ops.Flip: _flip, ops.Gather: _gather, ops.Scatter: _scatter, ops.Udf: _udf,
}  # fmt: skip

CONSTANT: Mapping[type[ops.Op], str] = {  # ops through which no gradient flows, and why
    ops.Constant: "it has no operands",
    ops.Iota: "it has no operands",
    ops.Eval: "it has no operands: steps are not differentiated",
    ops.Input: "it has no operands",
    ops.Random: "it is a function of integers",
    ops.Compare: "its result is a bool, which is constant between its jumps",
    ops.Argmax: "a position is constant between its jumps, as in JAX",
    ops.Argsort: "positions are constant between their jumps, as in JAX; the elements at them have gradients, by Gather",
    ops.Sink: "it has no result",
    ops.End: "it has no result",
    ops.Output: "it has no result",
}
_NO_SLOPE = NoGradient("its table of slopes has no row for it", missing=True)
_NO_ROW = NoGradient("it has a row neither in GRADIENTS nor in CONSTANT", missing=True)


def gradient_of(op: ops.Op) -> Rule | Zero | NoGradient:
    """How an op is differentiated: by a rule, with a gradient of zero, or not at all."""
    if type(op) in CONSTANT:
        return Zero(CONSTANT[type(op)])
    inner: Any = None
    if isinstance(op, (ops.Unary, ops.Binary)):
        inner = slope_of(op)
    elif isinstance(op, ops.Reduce):
        inner = REDUCE.get(op.fn, _NO_SLOPE)
    return inner if isinstance(inner, (Zero, NoGradient)) else GRADIENTS.get(type(op), _NO_ROW)

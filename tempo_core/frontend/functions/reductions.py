"""Reductions, scans and sorting along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tempo_core.frontend.aliases import Axes
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions.arithmetic import absolute, equal, exp, log, not_equal, sqrt
from tempo_core.frontend.functions.core import axes_of, cast, evaluate, one_axis
from tempo_core.frontend.functions.elementwise import where
from tempo_core.frontend.functions.shapes import aligned, reshape, squeeze
from tempo_core.frontend.tensor import Tensor, Value, apply, view
from tempo_core.ir import ops
from tempo_core.symbolic.expr import Expr

_CONTRACTED = ("float32", "float64")  # sums in fewer bits are rounded in other places than products of matrices


def summable(x: Tensor) -> Tensor:
    """`x`, with narrow integers and bools in 32 bits: the dtype of their sums and products, as in NumPy and JAX."""
    return cast(x, {"bool": "int32", "int8": "int32", "uint8": "uint32"}.get(x.dtype, x.dtype))


def reduced(fn: str, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    axes = axes_of(x, axis)
    if fn in ("sum", "prod"):
        x = summable(x)
    if fn in ("any", "all") and x.dtype != "bool":
        x = not_equal(x, 0)
    result = _as_contraction(x, axes) if fn == "sum" else None
    if result is None:
        result = apply(ops.Reduce(fn, axes), x) if axes else x
    return reshape(result, tuple(Expr.of(1) if k in axes else s for k, s in enumerate(x.type.shape))) if keepdims else result


def _as_contraction(x: Tensor, axes: tuple[int, ...]) -> Tensor | None:
    """The sum over `axes` of a product, as a `Dot` of its factors; None unless a factor repeats its elements along another axis.

    So no array of all products is made, neither here nor for the gradient.
    """
    node = x.node
    is_product = isinstance(node.op, ops.Binary) and node.op.fn == "mul" and x.dtype in _CONTRACTED
    if not is_product or not axes or x.materialized() is not x:
        return None
    (left, left_axes), (right, right_axes) = (_factor(view(x.context, edge)) for edge in node.inputs)
    kept = [k for k in range(x.rank) if k not in axes]
    shared = [k for k in kept if k in left_axes and k in right_axes]
    free = [[k for k in kept if k in own and k not in shared] for own in (left_axes, right_axes)]
    varies = {*left_axes, *right_axes} >= set(kept) and set(left_axes) & set(right_axes) >= set(axes)
    if not varies or not (free[0] or free[1]):
        return None
    places = [tuple(own.index(k) for k in group) for group in (axes, shared) for own in (left_axes, right_axes)]
    product = apply(ops.Dot(*places), left, right)
    order = [*shared, *free[0], *free[1]]
    if order == kept:
        return product
    return apply(ops.Permute(tuple(order.index(k) for k in kept)), product)


def _factor(x: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """A factor before it was broadcast, and the axes of the product along which it varies."""
    node = x.node
    if not isinstance(node.op, ops.Broadcast) or x.materialized() is not x:
        return x, tuple(range(x.rank))
    return view(x.context, node.inputs[0]), node.op.axes


total, product, greatest, least, any_of, all_of = Tensor.sum, Tensor.prod, Tensor.max, Tensor.min, Tensor.any, Tensor.all
count_nonzero, softmax, log_softmax = Tensor.count_nonzero, Tensor.softmax, Tensor.log_softmax
mean, var, std, norm = Tensor.mean, Tensor.var, Tensor.std, Tensor.norm
argmax, argmin, argsort = Tensor.argmax, Tensor.argmin, Tensor.argsort
cumsum, cumprod, cummax, cummin = Tensor.cumsum, Tensor.cumprod, Tensor.cummax, Tensor.cummin
discounted_sum = Tensor.discounted_sum


def count(x: Tensor, axis: int | Sequence[int] | None, less_by: int) -> Value:
    """The number of elements along `axis` minus `less_by`: a number, or a tensor of x's dtype if the sizes vary."""
    count = ops.product(tuple(x.type.shape[a] for a in axes_of(x, axis))) - less_by
    return cast(evaluate(count), x.dtype) if not count.is_constant else float(count.constant)


def root(x: Tensor) -> Tensor:
    """The square root, with a gradient of 0 at 0."""
    zero = equal(x, 0)
    return where(zero, 0, sqrt(where(zero, 1, x)))


@checked
def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """`log(sum(exp(x)))` along `axis`, without overflow.

    If the greatest element is infinite (all are -inf, or one is inf), the result is that element, and the gradient is 0.
    """
    high = greatest(x, axis, keepdims=True).detach()
    is_infinite = equal(absolute(high), math.inf)
    shift = where(is_infinite, 0, high)
    result = where(is_infinite, high, log(total(exp(where(is_infinite, 0, x - shift)), axis, keepdims=True)) + shift)
    return result if keepdims else squeeze(result, axis)


@checked
def linear_scan(coefficients: Tensor, terms: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """`y[k] = terms[k] + coefficients[k] * y[k - 1]` along `axis`; with `reverse`, `y[k + 1]`."""
    c, b = aligned(coefficients, terms)
    return apply(ops.LinearScan(one_axis(b, axis), reverse), c, b)

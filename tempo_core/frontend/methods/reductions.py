"""Reductions, scans and positions of elements along axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

from tempo_core.errors import ArgumentError
from tempo_core.frontend.aliases import Axes
from tempo_core.frontend.arguments import checked
from tempo_core.frontend.methods.elementwise import Elementwise, where
from tempo_core.frontend.methods.nodes import apply, evaluate, view
from tempo_core.frontend.methods.operands import axes_of, one_axis
from tempo_core.frontend.methods.operators import reversed_order
from tempo_core.frontend.methods.shapes import aligned
from tempo_core.ir import ops
from tempo_core.ir.types import is_float
from tempo_core.symbolic.expr import Expr

Tensor = TypeVar("Tensor", bound="Reductions[Any]")


class Reductions(Elementwise[Tensor]):
    """The methods of tensors that reduce or scan axes."""

    @checked
    def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`; narrow integers and bools are summed in 32 bits."""
        return _reduced("sum", x, axis, keepdims)

    @checked
    def prod(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The product over `axis`; narrow integers and bools are multiplied in 32 bits."""
        return _reduced("prod", x, axis, keepdims)

    @checked
    def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The greatest element along `axis`; NaN if an element is NaN."""
        return _reduced("max", x, axis, keepdims)

    @checked
    def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The least element along `axis`; NaN if an element is NaN."""
        return _reduced("min", x, axis, keepdims)

    @checked
    def any(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether any element along `axis` is not 0, as a bool."""
        return _reduced("any", x, axis, keepdims)

    @checked
    def all(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether all elements along `axis` are not 0, as a bool."""
        return _reduced("all", x, axis, keepdims)

    @checked
    def count_nonzero(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The number of elements that are not 0, as int32."""
        return x._not_equal(0).sum(axis, keepdims)

    @checked
    def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean over `axis`. A size that varies with a step is the divisor at each point."""
        if x.dtype == "float16":  # the sum may be beyond its range
            return x.astype("float32").mean(axis, keepdims).astype("float16")
        x = x if is_float(x.dtype) else x.astype("float32")
        return x.sum(axis, keepdims) / _count(x, axis, 0)

    @checked
    def var(x: Tensor, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The variance over `axis`: the mean squared distance from the mean; with `ddof=1`, the variance of a sample."""
        if x.dtype == "float16":
            return x.astype("float32").var(axis, keepdims, ddof).astype("float16")
        centred = (x - x.mean(axis, keepdims=True)).square()
        if not ddof:
            return centred.mean(axis, keepdims)
        return centred.sum(axis, keepdims) / _count(x, axis, ddof)

    @checked
    def std(x: Tensor, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The standard deviation over `axis`. Its gradient is 0 where it is 0."""
        return _root(x.var(axis, keepdims, ddof))

    @checked
    def norm(x: Tensor, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
        """The norm of vectors along `axis` (of all elements by default): `ord` 1, 2 or infinite. Its gradient is 0 at 0."""
        if ord == 2:
            return _root((x if is_float(x.dtype) else x.astype("float32")).square().sum(axis, keepdims))
        if ord not in (1, math.inf):
            raise ArgumentError(f"a norm cannot have the order {ord}", hint="ord=1, ord=2 or ord=math.inf")
        return x.abs().sum(axis, keepdims) if ord == 1 else x.abs().max(axis, keepdims)

    @checked
    def argmax(x: Tensor, axis: int = -1) -> Tensor:
        """The first position of the greatest element along `axis`, as int32. NaN counts as the greatest; without elements it is 0."""
        return apply(ops.Argmax(one_axis(x, axis)), x)

    @checked
    def argmin(x: Tensor, axis: int = -1) -> Tensor:
        """The first position of the least element along `axis`, as int32. NaN counts as the least; without elements it is 0."""
        return reversed_order(x).argmax(axis)

    @checked
    def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
        """The positions that sort `x` along `axis`, as int32; equal elements stay in order, NaN comes last."""
        return apply(ops.Argsort(one_axis(x, axis)), reversed_order(x) if descending else x)

    @checked
    def softmax(x: Tensor, axis: int = -1) -> Tensor:
        """`exp(x) / sum(exp(x))` along `axis`, without overflow."""
        shifted = (x - x.max(axis, keepdims=True).detach()).exp()
        return shifted / shifted.sum(axis, keepdims=True)

    @checked
    def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
        """`log(softmax(x))` along `axis`, without overflow."""
        shifted = x - x.max(axis, keepdims=True).detach()
        return shifted - shifted.exp().sum(axis, keepdims=True).log()

    @checked
    def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
        """`log(sum(exp(x)))` along `axis`, without overflow.

        If the greatest element is infinite (all are -inf, or one is inf), the result is that element, and the gradient is 0.
        """
        high = x.max(axis, keepdims=True).detach()
        is_infinite = high.abs() == math.inf
        shift = where(is_infinite, 0, high)
        result = where(is_infinite, high, where(is_infinite, 0, x - shift).exp().sum(axis, keepdims=True).log() + shift)
        return result if keepdims else result.squeeze(axis)

    @checked
    def cumsum(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative sum along `axis`; with `reverse`, of the suffixes."""
        return apply(ops.CumSum(one_axis(x, axis), reverse), _summable(x))

    @checked
    def cumprod(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative product along `axis`; with `reverse`, of the suffixes. Once an element is 0, the products are 0, whatever the others are."""
        x, at = _summable(x), one_axis(x, axis)
        size = x.type.shape[at]
        start = apply(ops.Iota(size)) == (size - 1 if reverse else 0)
        first = apply(ops.Broadcast(x.type.shape, (at,)), start)
        return where(first, 0, x)._linear_scan(where(first, x, 0), at, reverse)

    @checked
    def cummax(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative maximum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return apply(ops.CumMax(one_axis(x, axis), reverse), x)

    @checked
    def cummin(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative minimum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return reversed_order(reversed_order(x).cummax(axis, reverse))

    @checked
    def discounted_sum(x: Tensor, gamma: float, axis: int = 0) -> Tensor:
        """`x[0] + gamma * x[1] + gamma**2 * x[2] + ...` along `axis`."""
        x = x if is_float(x.dtype) else x.astype("float32")
        return apply(ops.DiscountedSum(one_axis(x, axis), float(gamma)), x)

    @checked
    def _linear_scan(coefficients: Tensor, terms: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """`y[k] = terms[k] + coefficients[k] * y[k - 1]` along `axis`; with `reverse`, `y[k + 1]`."""
        c, b = aligned(coefficients, terms)
        return apply(ops.LinearScan(one_axis(b, axis), reverse), c, b)


_CONTRACTED = ("float32", "float64")  # sums in fewer bits are rounded in other places than products of matrices


def _summable(x: Tensor) -> Tensor:
    """`x`, with narrow integers and bools in 32 bits: the dtype of their sums and products, as in NumPy and JAX."""
    return x.astype({"bool": "int32", "int8": "int32", "uint8": "uint32"}.get(x.dtype, x.dtype))


def _reduced(fn: str, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    axes = axes_of(x, axis)
    if fn in ("sum", "prod"):
        x = _summable(x)
    if fn in ("any", "all") and x.dtype != "bool":
        x = x._not_equal(0)
    result = _as_contraction(x, axes) if fn == "sum" else None
    if result is None:
        result = apply(ops.Reduce(fn, axes), x) if axes else x
    return result.reshape(tuple(Expr.of(1) if k in axes else s for k, s in enumerate(x.type.shape))) if keepdims else result


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


def _count(x: Tensor, axis: int | Sequence[int] | None, less_by: int) -> Tensor | float:
    """The number of elements along `axis` minus `less_by`: a number, or a tensor of x's dtype if the sizes vary."""
    count = ops.product(tuple(x.type.shape[a] for a in axes_of(x, axis))) - less_by
    return evaluate(count).astype(x.dtype) if not count.is_constant else float(count.constant)


def _root(x: Tensor) -> Tensor:
    """The square root, with a gradient of 0 at 0."""
    zero = x._equal(0)
    return where(zero, 0, where(zero, 1, x).sqrt())

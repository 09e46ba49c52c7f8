"""Functions on recurrent tensors, under NumPy's and JAX's names. Most are methods of `Tensor` too.

Operands broadcast as in NumPy, with symbolic sizes; Python numbers take the tensor's dtype; domains are unioned.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tempo_core.errors import DTypeError, ShapeError
from tempo_core.frontend.tensor import Tensor, apply
from tempo_core.ir import ops
from tempo_core.ir.types import DTYPES, is_float
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, IntoExpr

Value = Any  # a Tensor, a Python or NumPy number, an array, or a symbolic expression or condition

# -- constants --------------------------------------------------------------------------------------------------------


def constant(value: Any, dtype: str | None = None) -> Tensor:
    """An array or number as a tensor without steps. Python floats become float32, ints int32."""
    array = np.asarray(value)
    if dtype is None:
        dtype = {"float64": "float32", "int64": "int32", "uint64": "uint32"}.get(array.dtype.name, array.dtype.name)
    check_dtype(dtype)
    if dtype == "bfloat16":
        import ml_dtypes

        array = array.astype(ml_dtypes.bfloat16)
    else:
        array = array.astype(dtype)
    return apply(ops.Constant(dtype, array.shape, np.ascontiguousarray(array).tobytes()))


def full(shape: Any, value: Any, dtype: str = "float32") -> Tensor:
    """A tensor of one value; sizes may be symbolic."""
    return broadcast_to(constant(value, dtype), shape_of(shape))


def zeros(shape: Any, dtype: str = "float32") -> Tensor:
    return full(shape, 0, dtype)


def ones(shape: Any, dtype: str = "float32") -> Tensor:
    return full(shape, 1, dtype)


def arange(size: IntoExpr) -> Tensor:
    """`0, ..., size - 1` as int32."""
    return apply(ops.Iota(Expr.of(size)))


def evaluate(value: Expr | Bool) -> Tensor:
    """A step, bound or symbolic expression used as a number: an int32 (or bool) scalar whose domain is its steps."""
    return apply(ops.Eval(value))


Expr.as_tensor = staticmethod(evaluate)


def as_tensor(value: Value, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor; a Python number takes the dtype of `like`, unless it is a float and that an integer."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, (Expr, Bool)):
        number = evaluate(value)
        return cast(number, like.dtype) if like is not None and isinstance(value, Expr) and is_float(like.dtype) else number
    if like is None or isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return constant(value)
    if isinstance(value, bool):
        return constant(value, "bool")
    if isinstance(value, float) and not is_float(like.dtype):
        return constant(value, "float32")
    return constant(value, "int32" if like.dtype == "bool" else like.dtype)


def check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise DTypeError(f"unknown dtype {dtype!r}", hint=f"one of {', '.join(DTYPES)}")


# -- broadcasting and promotion ---------------------------------------------------------------------------------------


def shape_of(shape: Any) -> tuple[Expr, ...]:
    if isinstance(shape, (int, Expr)):
        shape = (shape,)
    return tuple(map(Expr.of, shape))


def promote(left: str, right: str) -> str:
    """The dtype of a result: equal dtypes stay; bool < integers < floats; two different ones of a kind meet in 32 bits."""
    if left == right:
        return left
    rank = {"bool": 0}
    kinds = [rank.get(d, 2 if is_float(d) else 1) for d in (left, right)]
    if kinds[0] != kinds[1]:
        return left if kinds[0] > kinds[1] else right
    if "float64" in (left, right) or "int64" in (left, right):
        return "float64" if kinds[0] == 2 else "int64"
    return "float32" if kinds[0] == 2 else "int32"


def broadcast_shapes(*shapes: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """NumPy's broadcast rule on symbolic sizes: equal, or one of them 1."""
    rank = max(map(len, shapes))
    result = []
    for position in range(rank):
        sizes = [s[position - rank + len(s)] for s in shapes if position - rank + len(s) >= 0]
        wide = [s for s in sizes if s != 1] or sizes[:1]
        if any(s != wide[0] for s in wide):
            text = " and ".join(f"({', '.join(map(str, s))})" for s in shapes)
            raise ShapeError(f"the shapes {text} do not broadcast: {wide[0]} against {next(s for s in wide if s != wide[0])}")
        result.append(wide[0])
    return tuple(result)


def broadcast_to(x: Tensor, shape: Any) -> Tensor:
    """`x` repeated to `shape` by NumPy's rule."""
    target = shape_of(shape)
    if x.shape == target:
        return x
    if broadcast_shapes(x.shape, target) != target:
        raise ShapeError(f"{x!r} does not broadcast to ({', '.join(map(str, target))})")
    offset = len(target) - x.rank
    kept = [k for k in range(x.rank) if x.shape[k] == target[k + offset]]
    if len(kept) != x.rank:
        x = reshape(x, tuple(x.shape[k] for k in kept))
    return apply(ops.Broadcast(target, tuple(k + offset for k in kept)), x)


def aligned(*values: Value) -> list[Tensor]:
    """Operands as tensors of one dtype and one shape."""
    like = next((v for v in values if isinstance(v, Tensor)), None)
    tensors = [as_tensor(v, like) for v in values]
    dtype = tensors[0].dtype
    for other in tensors[1:]:
        dtype = promote(dtype, other.dtype)
    shape = broadcast_shapes(*(t.shape for t in tensors))
    return [broadcast_to(cast(t, dtype), shape) for t in tensors]


def cast(x: Tensor, dtype: str) -> Tensor:
    """`x` converted to `dtype`."""
    check_dtype(dtype)
    return x if x.dtype == dtype else apply(ops.Cast(dtype), x)


# -- elementwise ------------------------------------------------------------------------------------------------------


def _unary(fn: str) -> Callable[[Value], Tensor]:
    def function(x: Value) -> Tensor:
        x = as_tensor(x)
        if fn not in ("neg", "abs", "sign", "not", "isfinite") and not is_float(x.dtype):
            x = cast(x, "float32")
        return apply(ops.Unary(fn), x)

    function.__name__ = fn
    function.__doc__ = f"Elementwise {fn}."
    return function


def _binary(fn: str, reflected: bool = False) -> Callable[[Value, Value], Tensor]:
    def function(x: Value, y: Value) -> Tensor:
        a, b = aligned(y, x) if reflected else aligned(x, y)
        if fn == "div" and not is_float(a.dtype):
            a, b = cast(a, "float32"), cast(b, "float32")
        if fn in ("add", "sub", "mul", "pow", "floordiv", "mod") and a.dtype == "bool":
            a, b = cast(a, "int32"), cast(b, "int32")
        return apply(ops.Binary(fn), a, b)

    function.__name__ = fn
    function.__doc__ = f"Elementwise {fn}."
    return function


def _compare(fn: str) -> Callable[[Value, Value], Tensor]:
    def function(x: Value, y: Value) -> Tensor:
        return apply(ops.Compare(fn), *aligned(x, y))

    function.__name__ = fn
    return function


neg, absolute, sign, exp, expm1, log, log1p = map(_unary, ("neg", "abs", "sign", "exp", "expm1", "log", "log1p"))
sqrt, rsqrt, sin, cos, tanh, sigmoid, erf = map(_unary, ("sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf"))
floor, ceil, rounded, logical_not, isfinite = map(_unary, ("floor", "ceil", "round", "not", "isfinite"))
add, sub, mul, div, power = map(_binary, ("add", "sub", "mul", "div", "pow"))
floordiv, mod, logical_and, logical_or, logical_xor = map(_binary, ("floordiv", "mod", "and", "or", "xor"))
maximum_of, minimum_of = map(_binary, ("maximum", "minimum"))
equal, not_equal, less, less_equal, greater, greater_equal = map(_compare, ("eq", "ne", "lt", "le", "gt", "ge"))


def where(condition: Value, x: Value, y: Value) -> Tensor:
    """`x` where `condition` holds, else `y`; also with a condition on steps."""
    test = as_tensor(condition)
    a, b = aligned(x, y)
    shape = broadcast_shapes(test.shape, a.shape)
    return apply(ops.Where(), *(broadcast_to(v, shape) for v in (test, a, b)))


def clip(x: Tensor, low: Value, high: Value) -> Tensor:
    return minimum_of(maximum_of(x, low), high)


def relu(x: Tensor) -> Tensor:
    return maximum_of(x, 0)


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """`log(1 + exp(x))`, without overflow."""
    return maximum_of(x, 0) + log1p(exp(neg(absolute(x))))


def gelu(x: Tensor) -> Tensor:
    """Exact GELU (Hendrycks and Gimpel, 2016): `x * Φ(x)`."""
    return 0.5 * x * (1 + erf(x * (1 / math.sqrt(2))))


def square(x: Tensor) -> Tensor:
    return mul(x, x)


# -- reductions and scans ---------------------------------------------------------------------------------------------


def axes_of(x: Tensor, axis: int | Sequence[int] | None) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.rank))
    chosen = (axis,) if isinstance(axis, int) else tuple(axis)
    for a in chosen:
        if not -x.rank <= a < x.rank:
            raise ShapeError(f"axis {a} of {x!r}, which has {x.rank} dimensions")
    return tuple(sorted({a % x.rank for a in chosen}))


def _reduction(fn: str) -> Callable[..., Tensor]:
    def function(x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        axes = axes_of(x, axis)
        if fn in ("sum", "prod") and x.dtype == "bool":
            x = cast(x, "int32")
        reduced = apply(ops.Reduce(fn, axes), x) if axes else x
        return reshape(reduced, tuple(Expr.of(1) if k in axes else s for k, s in enumerate(x.shape))) if keepdims else reduced

    function.__name__ = fn
    function.__doc__ = f"Reduction by {fn} over `axis` (all axes where it is None)."
    return function


total, product, greatest, least, any_of, all_of = map(_reduction, ("sum", "prod", "max", "min", "any", "all"))


def mean(x: Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """The mean over `axis`; sizes that vary with the step are divided by at each step."""
    if not is_float(x.dtype):
        x = cast(x, "float32")
    count = ops.product(tuple(x.shape[a] for a in axes_of(x, axis)))
    return div(total(x, axis, keepdims), cast(evaluate(count), x.dtype) if not count.is_constant else float(count.constant))


def var(x: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """The population variance over `axis`."""
    return mean(square(x - mean(x, axis, keepdims=True)), axis)


def one_axis(x: Tensor, axis: int) -> int:
    return axes_of(x, axis)[0]


def argmax(x: Tensor, axis: int = -1) -> Tensor:
    """The first position of the greatest element along `axis`, as int32."""
    return apply(ops.Argmax(one_axis(x, axis)), x)


def argsort(x: Tensor, axis: int = -1) -> Tensor:
    """The positions that sort `x` along `axis`, stable, as int32."""
    return apply(ops.Argsort(one_axis(x, axis)), x)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    shifted = exp(x - greatest(x, axis, keepdims=True).detach())
    return shifted / total(shifted, axis, keepdims=True)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    shifted = x - greatest(x, axis, keepdims=True).detach()
    return shifted - log(total(exp(shifted), axis, keepdims=True))


def logsumexp(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    high = greatest(x, axis, keepdims=True).detach()
    result = log(total(exp(x - high), axis, keepdims=True)) + high
    return result if keepdims else squeeze(result, axis)


def cumsum(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """Cumulative sum along `axis`; of suffixes with `reverse`."""
    return apply(ops.CumSum(one_axis(x, axis), reverse), x)


def linear_scan(coefficients: Tensor, terms: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
    """`y[k] = terms[k] + coefficients[k] * y[k - 1]` along `axis`; with `reverse`, `y[k + 1]`."""
    c, b = aligned(coefficients, terms)
    return apply(ops.LinearScan(one_axis(b, axis), reverse), c, b)


def discounted_sum(x: Tensor, gamma: float, axis: int = 0) -> Tensor:
    """`x[0] + gamma * x[1] + gamma**2 * x[2] + ...` along `axis`."""
    if not is_float(x.dtype):
        x = cast(x, "float32")
    return apply(ops.DiscountedSum(one_axis(x, axis), float(gamma)), x)


# -- contraction ------------------------------------------------------------------------------------------------------


def matmul(x: Value, y: Value) -> Tensor:
    """Matrix product by NumPy's rules: vectors contract; leading dimensions broadcast."""
    a, b = as_tensor(x), as_tensor(y)
    dtype = promote(a.dtype, b.dtype)
    a, b = cast(a, dtype), cast(b, dtype)
    if a.rank == 0 or b.rank == 0:
        raise ShapeError(f"matmul takes vectors, matrices or stacks of them, got {a!r} and {b!r}")
    inner = b.rank - 2 if b.rank > 1 else 0
    if a.shape[-1] != b.shape[inner]:
        raise ShapeError(f"matmul of {a!r} with {b!r}: {a.shape[-1]} against {b.shape[inner]}")
    if b.rank <= 2:
        return apply(ops.Dot((a.rank - 1,), (inner,)), a, b)
    if a.rank == 1:
        return apply(ops.Dot((0,), (inner,)), a, b)
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = broadcast_to(a, (*batch, *a.shape[-2:])), broadcast_to(b, (*batch, *b.shape[-2:]))
    shared = tuple(range(len(batch)))
    return apply(ops.Dot((a.rank - 1,), (b.rank - 2,), shared, shared), a, b)


# -- views ------------------------------------------------------------------------------------------------------------


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements under another shape; one size may be -1."""
    target = shape[0] if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
    sizes = [Expr.of(s) for s in target]
    unknown = [k for k, s in enumerate(sizes) if s.is_constant and s.constant == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one size can be -1 in a reshape of {x!r}")
    if unknown:
        known = ops.product(tuple(s for k, s in enumerate(sizes) if k != unknown[0]))
        whole = ops.product(x.shape)
        quotient = whole // known if known != 0 else Expr.of(0)
        if quotient * known != whole:
            quotient = _symbolic_quotient(whole, known, x)
        sizes[unknown[0]] = quotient
    return x if tuple(sizes) == x.shape else apply(ops.Reshape(tuple(sizes)), x)


def _symbolic_quotient(whole: Expr, known: Expr, x: Tensor) -> Expr:
    """`whole / known` where each is a single product."""
    if len(whole.terms) == 1 and len(known.terms) == 1:
        (numerator, a), (denominator, b) = whole.terms[0], known.terms[0]
        powers = dict(numerator)
        for atom, power_of in denominator:
            powers[atom] = powers.get(atom, 0) - power_of
        if a % b == 0 and all(p >= 0 for p in powers.values()):
            result = Expr.of(a // b)
            for atom, power_of in powers.items():
                for _ in range(power_of):
                    result = result * Expr.of_atom(atom)
            return result
    raise ShapeError(f"cannot tell the size -1 in a reshape of {x!r}: {whole} elements over {known}", hint="write the size out")


def transpose(x: Tensor, *axes: int) -> Tensor:
    """Axes in the given order (reversed where none is given)."""
    order = tuple(a % x.rank for a in axes) if axes else tuple(reversed(range(x.rank)))
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(f"cannot transpose {x!r} by {axes}")
    return x if order == tuple(range(x.rank)) else apply(ops.Permute(order), x)


def expand_dims(x: Tensor, axis: int) -> Tensor:
    at = axis % (x.rank + 1)
    return reshape(x, (*x.shape[:at], Expr.of(1), *x.shape[at:]))


def squeeze(x: Tensor, axis: int) -> Tensor:
    at = one_axis(x, axis)
    if x.shape[at] != 1:
        raise ShapeError(f"cannot squeeze axis {axis} of {x!r}: its size is {x.shape[at]}")
    return reshape(x, (*x.shape[:at], *x.shape[at + 1 :]))


def flatten(x: Tensor) -> Tensor:
    return reshape(x, (ops.product(x.shape),))


def flip(x: Tensor, axis: int = 0) -> Tensor:
    return apply(ops.Flip(one_axis(x, axis)), x)


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors one after the other along `axis`."""
    parts = [as_tensor(t) for t in tensors]
    dtype = parts[0].dtype
    for part in parts[1:]:
        dtype = promote(dtype, part.dtype)
    parts = [cast(p, dtype) for p in parts]
    return parts[0] if len(parts) == 1 else apply(ops.Concat(one_axis(parts[0], axis)), *parts)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """The tensors along a new axis."""
    return concatenate([expand_dims(t, axis) for t in aligned(*tensors)], axis)


def pad(x: Tensor, axis: int, low: IntoExpr = 0, high: IntoExpr = 0) -> Tensor:
    """Zeros before and after the elements of `axis`."""
    return apply(ops.Pad(one_axis(x, axis), Expr.of(low), Expr.of(high)), x)


# -- indexing by data -------------------------------------------------------------------------------------------------


def index(x: Tensor, axis: int, position: Value) -> Tensor:
    """`x` at `position` along `axis`: an int, an expression of steps, or an int32 tensor (whose shape replaces the axis)."""
    at = one_axis(x, axis)
    if isinstance(position, int) and position < 0:
        position = x.shape[at] + position
    where_to = (
        position
        if isinstance(position, Tensor)
        else (evaluate(position) if isinstance(position, Expr) else constant(position, "int32"))
    )
    return apply(ops.Gather(at), x, cast(where_to, "int32"))


def take(x: Tensor, indices: Value, axis: int = 0) -> Tensor:
    """`x[indices]` along `axis`."""
    return index(x, axis, indices)


def scatter_add(updates: Tensor, indices: Tensor, size: IntoExpr, axis: int = 0) -> Tensor:
    """Zeros with `size` elements along `axis`, to which the updates are added at `indices`."""
    return apply(ops.ScatterAdd(axis, Expr.of(size)), updates, indices)


def one_hot(x: Tensor, size: IntoExpr, dtype: str = "float32") -> Tensor:
    """Ones at the positions `x` of a new last dimension of `size`."""
    return cast(equal(expand_dims(x, x.rank), arange(size)), dtype)


def take_along_last(x: Tensor, indices: Tensor) -> Tensor:
    """`x[..., indices]`, one position of the last axis for each leading position (shape of `indices`)."""
    chosen = one_hot(indices, x.shape[-1], x.dtype)
    return total(x * chosen, -1)


METHODS: dict[str, Callable[..., Any]] = {
    "sum": total, "prod": product, "max": greatest, "min": least, "any": any_of, "all": all_of, "mean": mean,
    "argmax": argmax, "argsort": argsort, "softmax": softmax, "log_softmax": log_softmax, "cumsum": cumsum,
    "discounted_sum": discounted_sum, "reshape": reshape, "transpose": transpose, "expand_dims": expand_dims,
    "squeeze": squeeze, "flatten": flatten, "flip": flip, "astype": cast, "index": index, "take": take,
    "one_hot": one_hot, "exp": exp, "log": log, "sqrt": sqrt, "tanh": tanh, "sigmoid": sigmoid, "relu": relu,
    "abs": absolute, "__abs__": absolute, "__neg__": neg, "__invert__": logical_not,
    "__add__": add, "__radd__": _binary("add", True), "__sub__": sub, "__rsub__": _binary("sub", True),
    "__mul__": mul, "__rmul__": _binary("mul", True), "__truediv__": div, "__rtruediv__": _binary("div", True),
    "__pow__": power, "__rpow__": _binary("pow", True), "__floordiv__": floordiv, "__mod__": mod,
    "__rfloordiv__": _binary("floordiv", True), "__rmod__": _binary("mod", True),
    "__matmul__": matmul, "__rmatmul__": lambda x, y: matmul(y, x),
    "__and__": logical_and, "__or__": logical_or, "__xor__": logical_xor, "__rand__": _binary("and", True),
    "__ror__": _binary("or", True), "__lt__": less, "__le__": less_equal, "__gt__": greater, "__ge__": greater_equal,
    "__eq__": equal, "__ne__": not_equal, "__hash__": lambda x: id(x),
}  # fmt: skip

for _name, _function in METHODS.items():
    setattr(Tensor, _name, _function)

"""Tempo: recurrent tensors, compiled. See README.md; `tempo_core.Context` is where a program begins."""

from typing import Any

from tempo_core import errors, nn, optim
from tempo_core.compiler import compile_context, recalled
from tempo_core.config import Config
from tempo_core.frontend import random, spatial  # noqa: F401  (spatial gives tensors their `.spatial`)
from tempo_core.frontend.arguments import checked_module as _checked_module
from tempo_core.frontend.autodiff import grad
from tempo_core.frontend.carry import carry
from tempo_core.frontend.context import Context
from tempo_core.frontend.functions import absolute as abs
from tempo_core.frontend.functions import (
    add,
    arange,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    argmax,
    argmin,
    argsort,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    ceil,
    clip,
    concatenate,
    constant,
    conv,
    cos,
    cosh,
    count_nonzero,
    cummax,
    cummin,
    cumprod,
    cumsum,
    diagonal,
    discounted_sum,
    einsum,
    elu,
    equal,
    erf,
    exp,
    exp2,
    expand_dims,
    expm1,
    eye,
    flatten,
    flip,
    floor,
    full,
    full_like,
    gelu,
    greater,
    greater_equal,
    hypot,
    index_add,
    inner,
    isclose,
    isfinite,
    isinf,
    isnan,
    leaky_relu,
    less,
    less_equal,
    linear_scan,
    log,
    log1p,
    log2,
    log10,
    log_sigmoid,
    log_softmax,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    logsumexp,
    matmul,
    mean,
    median,
    moveaxis,
    nan_to_num,
    norm,
    not_equal,
    one_hot,
    ones,
    ones_like,
    outer,
    pad,
    power,
    promote,
    reciprocal,
    relu,
    repeat,
    reshape,
    roll,
    rsqrt,
    scatter,
    scatter_add,
    sigmoid,
    sign,
    silu,
    sin,
    sinh,
    softmax,
    softplus,
    sort,
    split,
    sqrt,
    square,
    squeeze,
    stack,
    std,
    stop_gradient,
    swapaxes,
    take,
    take_along_axis,
    take_along_last,
    tan,
    tanh,
    tensordot,
    tile,
    top_k,
    trace,
    transpose,
    tril,
    triu,
    trunc,
    var,
    where,
    zeros,
    zeros_like,
)
from tempo_core.frontend.functions import all_of as all
from tempo_core.frontend.functions import any_of as any
from tempo_core.frontend.functions import div as divide
from tempo_core.frontend.functions import floordiv as floor_divide
from tempo_core.frontend.functions import maximum_of as _maximum_of
from tempo_core.frontend.functions import minimum_of as _minimum_of
from tempo_core.frontend.functions import mod as remainder
from tempo_core.frontend.functions import mul as multiply
from tempo_core.frontend.functions import neg as negative
from tempo_core.frontend.functions import product as prod
from tempo_core.frontend.functions import rounded as round
from tempo_core.frontend.functions import sub as subtract
from tempo_core.frontend.functions import total as sum
from tempo_core.frontend.sources import Recurrence, input, recurrence, sink, spec, udf
from tempo_core.frontend.tensor import Tensor
from tempo_core.program import Program
from tempo_core.symbolic import expr as _expr
from tempo_core.symbolic.expr import Expr


def _symbolic(*values: Any) -> bool:
    import builtins

    return builtins.all(isinstance(v, _expr.Expr) or type(v) is int for v in values)


def _refuse_tensors(name: str, values: tuple[Any, ...]) -> None:
    if Tensor in map(type, values) or Recurrence in map(type, values):
        full = f"{name}imum"
        raise errors.ArgumentError(
            f"tp.{name} takes ints and expressions of steps and bounds, not tensors",
            hint=f"tp.{full}(x, y) of two tensors; x.{name}(axis) over an axis of one",
        )


def min(*values: Any) -> Any:
    """The least of symbolic expressions, as an index: `r[t : tp.min(t + 5, T)]`."""
    _refuse_tensors("min", values)
    return _expr.minimum(*values)


def max(*values: Any) -> Any:
    """The greatest of symbolic expressions, as an index: `x[tp.max(t - 3, 0) : t + 1]`."""
    _refuse_tensors("max", values)
    return _expr.maximum(*values)


def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of tensors; of two symbolic expressions, an expression."""
    return _expr.minimum(x, y) if _symbolic(x, y) else _minimum_of(x, y)


def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum of tensors; of two symbolic expressions, an expression."""
    return _expr.maximum(x, y) if _symbolic(x, y) else _maximum_of(x, y)


Context._compile = staticmethod(compile_context)
Context._recalled = staticmethod(recalled)

__version__ = "0.1.0"

__all__ = [
    "Config", "Context", "Expr", "Program", "Recurrence", "Tensor", "abs", "add", "all", "any", "arange", "arccos", "arccosh",
    "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "bitwise_and", "bitwise_not",
    "bitwise_or", "bitwise_xor", "broadcast_to", "carry", "ceil", "clip", "concatenate", "constant", "conv", "cos", "cosh",
    "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "diagonal", "discounted_sum", "divide", "einsum", "elu",
    "equal", "erf", "errors", "exp", "exp2", "expand_dims", "expm1", "eye", "flatten", "flip", "floor", "floor_divide",
    "full", "full_like", "gelu", "grad", "greater", "greater_equal", "hypot", "index_add", "inner", "input", "isclose",
    "isfinite", "isinf", "isnan", "leaky_relu", "less", "less_equal", "linear_scan", "log", "log10", "log1p", "log2",
    "log_sigmoid", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp",
    "matmul", "max", "maximum", "mean", "median", "min", "minimum", "moveaxis", "multiply", "nan_to_num", "negative", "nn",
    "norm", "not_equal", "one_hot", "ones", "ones_like", "optim", "outer", "pad", "power", "prod", "promote", "random",
    "reciprocal", "recurrence", "relu", "remainder", "repeat", "reshape", "roll", "round", "rsqrt", "scatter", "scatter_add",
    "sigmoid", "sign", "silu", "sin", "sinh", "sink", "softmax", "softplus", "sort", "spec", "split", "sqrt", "square",
    "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "swapaxes", "take", "take_along_axis", "take_along_last",
    "tan", "tanh", "tensordot", "tile", "top_k", "trace", "transpose", "tril", "triu", "trunc", "udf", "var", "where",
    "zeros", "zeros_like",
]  # fmt: skip

_checked_module(globals(), __all__)

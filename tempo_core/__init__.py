"""Tempo: recurrent tensors, compiled. See README.md; `tempo_core.Context` is where a program begins."""

from typing import Any

from tempo_core import errors, nn, optim
from tempo_core.compiler import Program, compile_context
from tempo_core.config import Config
from tempo_core.frontend import random, spatial  # noqa: F401  (spatial gives tensors their `.spatial`)
from tempo_core.frontend.autodiff import grad
from tempo_core.frontend.context import Context
from tempo_core.frontend.functions import (
    absolute as abs,
)  # fmt: skip
from tempo_core.frontend.functions import (
    all_of as all,
)
from tempo_core.frontend.functions import (
    any_of as any,
)
from tempo_core.frontend.functions import (
    arange,
    argmax,
    argsort,
    broadcast_to,
    ceil,
    clip,
    concatenate,
    constant,
    cos,
    cumsum,
    discounted_sum,
    erf,
    exp,
    expm1,
    floor,
    full,
    gelu,
    isfinite,
    linear_scan,
    log,
    log1p,
    log_softmax,
    logsumexp,
    matmul,
    mean,
    one_hot,
    ones,
    pad,
    relu,
    reshape,
    rsqrt,
    scatter_add,
    sigmoid,
    sign,
    silu,
    sin,
    softmax,
    softplus,
    sqrt,
    square,
    stack,
    take,
    take_along_last,
    tanh,
    transpose,
    var,
    where,
    zeros,
)
from tempo_core.frontend.functions import maximum_of as _maximum_of
from tempo_core.frontend.functions import minimum_of as _minimum_of
from tempo_core.frontend.functions import (
    total as sum,
)
from tempo_core.frontend.sources import Recurrence, input, recurrence, sink, spec, udf
from tempo_core.frontend.tensor import Tensor
from tempo_core.symbolic import expr as _expr
from tempo_core.symbolic.expr import Expr


def _symbolic(*values: Any) -> bool:
    import builtins

    return builtins.all(isinstance(v, _expr.Expr) or type(v) is int for v in values)


def min(*values: Any) -> Any:
    """The least of symbolic expressions, as an index: `r[t : tp.min(t + 5, T)]`."""
    return _expr.minimum(*values)


def max(*values: Any) -> Any:
    """The greatest of symbolic expressions, as an index: `x[tp.max(t - 3, 0) : t + 1]`."""
    return _expr.maximum(*values)


def minimum(x: Any, y: Any) -> Any:
    """Elementwise minimum of tensors; of two symbolic expressions, an expression."""
    return _expr.minimum(x, y) if _symbolic(x, y) else _minimum_of(x, y)


def maximum(x: Any, y: Any) -> Any:
    """Elementwise maximum of tensors; of two symbolic expressions, an expression."""
    return _expr.maximum(x, y) if _symbolic(x, y) else _maximum_of(x, y)


Context._compile = staticmethod(compile_context)

__version__ = "0.1.0"

__all__ = [
    "Config", "Context", "Expr", "Program", "Recurrence", "Tensor", "abs", "all", "any", "arange", "argmax", "argsort", "broadcast_to", "ceil",
    "clip", "concatenate", "constant", "cos", "cumsum", "discounted_sum", "erf", "errors", "exp", "expm1", "floor", "full", "gelu",
    "grad", "input", "isfinite", "linear_scan", "log", "log1p", "log_softmax", "logsumexp", "matmul", "max", "maximum", "mean", "min",
    "minimum", "nn", "one_hot", "ones", "optim", "pad", "random", "recurrence", "relu", "reshape", "rsqrt", "scatter_add", "sigmoid",
    "sign", "silu", "sin", "sink", "softmax", "softplus", "spec", "sqrt", "square", "stack", "sum", "take", "take_along_last", "tanh",
    "transpose", "udf", "var", "where", "zeros",
]  # fmt: skip

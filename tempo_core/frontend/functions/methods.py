"""The functions that tensors have as methods and operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tempo_core.frontend.arguments import checked
from tempo_core.frontend.functions import contractions, core, elementwise, indexing, reductions, shapes
from tempo_core.frontend.functions.core import Value
from tempo_core.frontend.functions.elementwise import binary
from tempo_core.frontend.tensor import Tensor

# Under their own names. The first argument is the tensor.
_SAME = {
    shapes: (
        "broadcast_to", "expand_dims", "flatten", "flip", "moveaxis", "repeat", "reshape", "split", "squeeze", "swapaxes", "tile",
        "transpose",
    ),
    elementwise: (
        "clip", "ceil", "cos", "erf", "exp", "expm1", "floor", "gelu", "isfinite", "isinf", "isnan", "log", "log1p", "reciprocal", "relu",
        "rsqrt", "sigmoid", "sign", "silu", "sin", "softplus", "sqrt", "square", "tanh", "trunc",
    ),
    reductions: (
        "argmax", "argmin", "argsort", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "discounted_sum", "log_softmax", "logsumexp",
        "mean", "norm", "softmax", "std", "var",
    ),
    indexing: (
        "diagonal", "index", "index_add", "median", "one_hot", "roll", "scatter", "sort", "take", "take_along_axis", "top_k", "trace", "tril",
        "triu",
    ),
}  # fmt: skip


def _matmul_of(y: Value, x: Value) -> Tensor:
    return contractions.matmul(x, y)


METHODS: dict[str, Callable[..., Any]] = {
    **{name: getattr(module, name) for module, names in _SAME.items() for name in names},
    "sum": reductions.total, "prod": reductions.product, "max": reductions.greatest, "min": reductions.least,
    "any": reductions.any_of, "all": reductions.all_of, "astype": core.cast, "abs": elementwise.absolute, "round": elementwise.rounded,
    "__abs__": elementwise.absolute, "__neg__": elementwise.neg, "__invert__": elementwise.bitwise_not,
    "__add__": elementwise.add, "__radd__": binary("add", True), "__sub__": elementwise.sub, "__rsub__": binary("sub", True),
    "__mul__": elementwise.mul, "__rmul__": binary("mul", True), "__truediv__": elementwise.div, "__rtruediv__": binary("div", True),
    "__pow__": elementwise.power, "__rpow__": binary("pow", True), "__floordiv__": elementwise.floordiv, "__mod__": elementwise.mod,
    "__rfloordiv__": binary("floordiv", True), "__rmod__": binary("mod", True),
    "__matmul__": contractions.matmul, "__rmatmul__": _matmul_of,
    "__and__": elementwise.bitwise_and, "__or__": elementwise.bitwise_or, "__xor__": elementwise.bitwise_xor,
    "__rand__": binary("and", True), "__ror__": binary("or", True), "__rxor__": binary("xor", True),
    "__lt__": elementwise.less, "__le__": elementwise.less_equal, "__gt__": elementwise.greater, "__ge__": elementwise.greater_equal,
    "__eq__": elementwise.equal, "__ne__": elementwise.not_equal, "__hash__": lambda x: id(x),
}  # fmt: skip

for _name, _function in METHODS.items():
    setattr(Tensor, _name, _function if _name == "__hash__" else checked(_function, "" if _name.startswith("__") else _name))

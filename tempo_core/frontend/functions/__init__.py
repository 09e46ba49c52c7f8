"""Functions on recurrent tensors, under NumPy's and JAX's names. Most are methods of `Tensor` too.

Operands broadcast as in NumPy, with symbolic sizes; Python numbers take the tensor's dtype; the domain is the union of the operands'.
"""
# ruff: noqa: F403, F405

from tempo_core.frontend.functions.arithmetic import *
from tempo_core.frontend.functions.contractions import *
from tempo_core.frontend.functions.core import *
from tempo_core.frontend.functions.earlier import *
from tempo_core.frontend.functions.elementwise import *
from tempo_core.frontend.functions.indexing import *
from tempo_core.frontend.functions.reductions import *
from tempo_core.frontend.functions.segments import *
from tempo_core.frontend.functions.shapes import *
from tempo_core.frontend.tensor import FUNCTIONS

__all__ = [  # of these functions: those that users have under the same names
    "add", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "bincount", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "ceil", "clip", "concatenate", "constant", "conv", "cos", "cosh",
    "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "diagonal", "discounted_sum", "einsum", "elu", "equal", "erf", "exp", "exp2",
    "expand_dims", "expm1", "eye", "flatten", "flip", "floor", "full", "full_like", "gelu", "greater", "greater_equal", "histogram", "hypot",
    "index_add", "inner", "isclose", "isfinite", "isinf", "isnan", "leaky_relu", "less", "less_equal", "linear_scan", "log", "log1p",
    "log2", "log10", "log_sigmoid", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp",
    "matmul", "mean", "median", "moveaxis", "nan_to_num", "norm", "not_equal", "one_hot", "ones", "ones_like", "outer", "pad", "power",
    "promote", "reciprocal", "relu", "repeat", "reshape", "roll", "rsqrt", "scatter", "scatter_add", "searchsorted", "segment_max",
    "segment_min", "segment_prod", "segment_sum", "sigmoid", "sign", "silu", "sin",
    "sinh", "softmax", "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "swapaxes", "take",
    "take_along_axis", "take_along_last", "tan", "tanh", "tensordot", "tile", "top_k", "trace", "transpose", "tril", "triu", "trunc", "var",
    "where", "zeros", "zeros_like",
]  # fmt: skip

FUNCTIONS.update({name: value for name, value in globals().items() if callable(value)})

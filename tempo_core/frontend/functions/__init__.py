"""Functions on recurrent tensors, under NumPy's and JAX's names. Those of one tensor are methods of `Tensor`.

Operands broadcast as in NumPy, with symbolic sizes; Python numbers take the tensor's dtype; the domain is the union of the operands'.
"""
# ruff: noqa: E501, F403, F405

from tempo_core.frontend.functions.contractions import *
from tempo_core.frontend.functions.creation import *
from tempo_core.frontend.functions.pointwise import *
from tempo_core.frontend.functions.segments import *
from tempo_core.frontend.tensor import Tensor

abs, sign, round, floor, ceil, trunc, clip, square = (
    Tensor.abs, Tensor.sign, Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc, Tensor.clip, Tensor.square,
)  # fmt: skip
exp, expm1, log, log1p, sqrt, rsqrt, reciprocal = (
    Tensor.exp, Tensor.expm1, Tensor.log, Tensor.log1p, Tensor.sqrt, Tensor.rsqrt, Tensor.reciprocal,
)  # fmt: skip
sigmoid, tanh, erf, sin, cos, relu, silu = (
    Tensor.sigmoid,
    Tensor.tanh,
    Tensor.erf,
    Tensor.sin,
    Tensor.cos,
    Tensor.relu,
    Tensor.silu,
)
gelu, softplus, isfinite, isnan, isinf = Tensor.gelu, Tensor.softplus, Tensor.isfinite, Tensor.isnan, Tensor.isinf
add, subtract, multiply, divide, power = Tensor._add, Tensor._subtract, Tensor._multiply, Tensor._divide, Tensor._power
negative, floor_divide, remainder, matmul = Tensor._negative, Tensor._floor_divide, Tensor._remainder, Tensor._matmul
bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
    Tensor._bitwise_and,
    Tensor._bitwise_or,
    Tensor._bitwise_xor,
    Tensor._bitwise_not,
)
equal, not_equal, less, less_equal = Tensor._equal, Tensor._not_equal, Tensor._less, Tensor._less_equal
greater, greater_equal = Tensor._greater, Tensor._greater_equal
sum, prod, any, all, count_nonzero = Tensor.sum, Tensor.prod, Tensor.any, Tensor.all, Tensor.count_nonzero
mean, var, std, norm, median = Tensor.mean, Tensor.var, Tensor.std, Tensor.norm, Tensor.median
argmax, argmin, argsort, sort, top_k = Tensor.argmax, Tensor.argmin, Tensor.argsort, Tensor.sort, Tensor.top_k
softmax, log_softmax, logsumexp = Tensor.softmax, Tensor.log_softmax, Tensor.logsumexp
cumsum, cumprod, cummax, cummin = Tensor.cumsum, Tensor.cumprod, Tensor.cummax, Tensor.cummin
linear_scan, discounted_sum = Tensor._linear_scan, Tensor.discounted_sum
reshape, flatten, broadcast_to, expand_dims, squeeze = (
    Tensor.reshape, Tensor.flatten, Tensor.broadcast_to, Tensor.expand_dims, Tensor.squeeze,
)  # fmt: skip
transpose, swapaxes, moveaxis, split, flip = Tensor.transpose, Tensor.swapaxes, Tensor.moveaxis, Tensor.split, Tensor.flip
repeat, tile, roll = Tensor.repeat, Tensor.tile, Tensor.roll
take, take_along_axis, take_along_last, one_hot = Tensor.take, Tensor.take_along_axis, Tensor._take_along_last, Tensor.one_hot
scatter, scatter_add, index_add = Tensor.scatter, Tensor._scatter_add, Tensor.index_add
diagonal, trace, tril, triu = Tensor.diagonal, Tensor.trace, Tensor.tril, Tensor.triu
cast, index = Tensor.astype, Tensor.index

__all__ = [  # of these functions: those that users have under the same names
    "abs", "add", "all", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "bincount", "bitwise_and",
    "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "ceil", "clip", "concatenate", "constant", "conv", "cos", "cosh",
    "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "diagonal", "discounted_sum", "divide", "einsum", "elu", "equal", "erf", "exp", "exp2",
    "expand_dims", "expm1", "eye", "flatten", "flip", "floor", "floor_divide", "full", "full_like", "gelu", "greater", "greater_equal", "histogram", "hypot",
    "index_add", "inner", "isclose", "isfinite", "isinf", "isnan", "leaky_relu", "less", "less_equal", "linear_scan", "log", "log1p",
    "log2", "log10", "log_sigmoid", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "logsumexp",
    "matmul", "maximum", "mean", "median", "minimum", "moveaxis", "multiply", "nan_to_num", "negative", "norm", "not_equal", "one_hot", "ones", "ones_like", "outer", "pad", "power", "prod",
    "promote", "reciprocal", "relu", "remainder", "repeat", "reshape", "roll", "round", "rsqrt", "scatter", "scatter_add", "searchsorted", "segment_max",
    "segment_min", "segment_prod", "segment_sum", "sigmoid", "sign", "silu", "sin",
    "sinh", "softmax", "softplus", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "swapaxes", "take",
    "take_along_axis", "take_along_last", "tan", "tanh", "tensordot", "tile", "top_k", "trace", "transpose", "tril", "triu", "trunc", "var",
    "where", "zeros", "zeros_like",
]  # fmt: skip

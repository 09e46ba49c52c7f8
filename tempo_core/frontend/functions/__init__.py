"""Functions on recurrent tensors, under NumPy's and JAX's names. Most are methods of `Tensor` too.

Operands broadcast as in NumPy, with symbolic sizes; Python numbers take the tensor's dtype; the domain is the union of the operands'.
"""
# ruff: noqa: F403, F405

from tempo_core.frontend.functions.contractions import *
from tempo_core.frontend.functions.creation import *
from tempo_core.frontend.functions.pointwise import *
from tempo_core.frontend.functions.segments import *
from tempo_core.frontend.methods.operands import promote
from tempo_core.frontend.tensor import Tensor

abs, sign, round, floor, ceil, trunc = Tensor.abs, Tensor.sign, Tensor.round, Tensor.floor, Tensor.ceil, Tensor.trunc
clip, square, exp, expm1, log, log1p = Tensor.clip, Tensor.square, Tensor.exp, Tensor.expm1, Tensor.log, Tensor.log1p
sqrt, rsqrt, reciprocal, sigmoid, tanh = Tensor.sqrt, Tensor.rsqrt, Tensor.reciprocal, Tensor.sigmoid, Tensor.tanh
erf, sin, cos, relu, silu, gelu = Tensor.erf, Tensor.sin, Tensor.cos, Tensor.relu, Tensor.silu, Tensor.gelu
softplus, isfinite, isnan, isinf = Tensor.softplus, Tensor.isfinite, Tensor.isnan, Tensor.isinf
tan, arcsin, arccos, arctan, arctan2 = Tensor._tan, Tensor._arcsin, Tensor._arccos, Tensor._arctan, Tensor._arctan2
sinh, cosh, arcsinh, arccosh = Tensor._sinh, Tensor._cosh, Tensor._arcsinh, Tensor._arccosh
arctanh, logaddexp = Tensor._arctanh, Tensor._logaddexp
add, subtract, multiply, divide, power = Tensor._add, Tensor._subtract, Tensor._multiply, Tensor._divide, Tensor._power
negative, floor_divide, remainder, matmul = Tensor._negative, Tensor._floor_divide, Tensor._remainder, Tensor._matmul
bitwise_and, bitwise_or, bitwise_xor = Tensor._bitwise_and, Tensor._bitwise_or, Tensor._bitwise_xor
bitwise_not = Tensor._bitwise_not
equal, not_equal, less, less_equal, greater = Tensor._equal, Tensor._not_equal, Tensor._less, Tensor._less_equal, Tensor._greater
greater_equal = Tensor._greater_equal
sum, prod, any, all, count_nonzero, mean = Tensor.sum, Tensor.prod, Tensor.any, Tensor.all, Tensor.count_nonzero, Tensor.mean
var, std, norm, median, argmax, argmin = Tensor.var, Tensor.std, Tensor.norm, Tensor.median, Tensor.argmax, Tensor.argmin
argsort, sort, top_k, softmax, log_softmax = Tensor.argsort, Tensor.sort, Tensor.top_k, Tensor.softmax, Tensor.log_softmax
logsumexp, cumsum, cumprod, cummax, cummin = Tensor.logsumexp, Tensor.cumsum, Tensor.cumprod, Tensor.cummax, Tensor.cummin
linear_scan, discounted_sum = Tensor._linear_scan, Tensor.discounted_sum
reshape, flatten, broadcast_to, expand_dims = Tensor.reshape, Tensor.flatten, Tensor.broadcast_to, Tensor.expand_dims
squeeze, transpose, swapaxes, moveaxis, split = Tensor.squeeze, Tensor.transpose, Tensor.swapaxes, Tensor.moveaxis, Tensor.split
flip, repeat, tile, roll = Tensor.flip, Tensor.repeat, Tensor.tile, Tensor.roll
take, take_along_axis, take_along_last, one_hot = Tensor.take, Tensor.take_along_axis, Tensor._take_along_last, Tensor.one_hot
scatter, scatter_add, index_add, diagonal = Tensor.scatter, Tensor._scatter_add, Tensor.index_add, Tensor.diagonal
trace, tril, triu, cast, index = Tensor.trace, Tensor.tril, Tensor.triu, Tensor.astype, Tensor.index

__all__ = [  # of these functions: those that users have under the same names
    "abs", "add", "all", "any", "arange", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin",
    "argsort", "bincount", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "ceil", "clip", "concatenate", "constant",
    "conv", "cos", "cosh", "count_nonzero", "cummax", "cummin", "cumprod", "cumsum", "diagonal", "discounted_sum", "divide", "einsum", "elu",
    "equal", "erf", "exp", "exp2", "expand_dims", "expm1", "eye", "flatten", "flip", "floor", "floor_divide", "full", "full_like", "gelu",
    "greater", "greater_equal", "histogram", "hypot", "index_add", "inner", "isclose", "isfinite", "isinf", "isnan", "leaky_relu", "less",
    "less_equal", "linear_scan", "log", "log10", "log1p", "log2", "log_sigmoid", "log_softmax", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "logsumexp", "matmul", "maximum", "mean", "median", "minimum", "moveaxis", "multiply", "nan_to_num",
    "negative", "norm", "not_equal", "one_hot", "ones", "ones_like", "outer", "pad", "power", "prod", "promote", "reciprocal", "relu",
    "remainder", "repeat", "reshape", "roll", "round", "rsqrt", "scatter", "scatter_add", "searchsorted", "segment_max", "segment_min",
    "segment_prod", "segment_sum", "sigmoid", "sign", "silu", "sin", "sinh", "softmax", "softplus", "sort", "split", "sqrt", "square",
    "squeeze", "stack", "std", "stop_gradient", "subtract", "sum", "swapaxes", "take", "take_along_axis", "take_along_last", "tan", "tanh",
    "tensordot", "tile", "top_k", "trace", "transpose", "tril", "triu", "trunc", "var", "where", "zeros", "zeros_like",
]  # fmt: skip

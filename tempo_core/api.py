"""All public names of the core. `tempo_core` has them too, and imports this module, and JAX with it, when the first of them is used."""

from tempo_core import errors, nn, optim, typing
from tempo_core.config import Config
from tempo_core.context import Context
from tempo_core.frontend import random
from tempo_core.frontend.autodiff.backward import grad
from tempo_core.frontend.carry import carry
from tempo_core.frontend.cpu_devices import use_cpu_devices
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
from tempo_core.frontend.functions import mod as remainder
from tempo_core.frontend.functions import mul as multiply
from tempo_core.frontend.functions import neg as negative
from tempo_core.frontend.functions import product as prod
from tempo_core.frontend.functions import rounded as round
from tempo_core.frontend.functions import sub as subtract
from tempo_core.frontend.functions import total as sum
from tempo_core.frontend.functions.extrema import greatest_index as max
from tempo_core.frontend.functions.extrema import least_index as min
from tempo_core.frontend.functions.extrema import maximum, minimum
from tempo_core.frontend.inputs import input, sink, spec, udf
from tempo_core.frontend.recurrence import Recurrence, recurrence
from tempo_core.frontend.run_lengths import upto
from tempo_core.frontend.tensor import Tensor
from tempo_core.frontend.tensor import UserExpr as Expr
from tempo_core.program import Program
from tempo_core.report.programs.profile import Profile
from tempo_core.runtime.cost.machine import Machine
from tempo_core.runtime.embedded.jax_function import JaxFunction, JaxState
from tempo_core.runtime.live.live import Run
from tempo_core.runtime.live.state_file import Snapshot

__all__ = [
    "Config", "Context", "Expr", "JaxFunction", "JaxState", "Machine", "Profile", "Program", "Recurrence", "Run", "Snapshot", "Tensor", "abs", "add", "all",
    "any", "arange", "arccos", "arccosh",
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
    "tan", "tanh", "tensordot", "tile", "top_k", "trace", "transpose", "tril", "triu", "trunc", "typing", "udf", "upto", "use_cpu_devices", "var",
    "where",
    "zeros", "zeros_like",
]  # fmt: skip

"""The op set: one frozen dataclass per op, with its shape and dtype rule in `infer`.

Ops are stateless and know nothing of time: temporal indexing is on the graph's edges. An op's fields are its static
parameters; sizes may be symbolic expressions. The operands of an elementwise op have equal shapes (the frontend inserts
`Broadcast` and `Cast`). Kernels, gradients, vectorization and padding rules are tables keyed by these classes, elsewhere.
"""

from tempo_core.ir.ops.base import Op, Types, check, product, same_shape
from tempo_core.ir.ops.contraction_ops import Conv, Dot
from tempo_core.ir.ops.elementwise_ops import BINARY, COMPARE, UNARY, Binary, Cast, Compare, Function, Identity, Unary, Where
from tempo_core.ir.ops.indexing_ops import Gather, ScatterAdd
from tempo_core.ir.ops.reduction_ops import REDUCE, Argmax, Argsort, CumMax, CumSum, DiscountedSum, LinearScan, Reduce
from tempo_core.ir.ops.source_ops import Constant, Eval, Input, Iota, Random
from tempo_core.ir.ops.structure_ops import Dataflow, Dataflowed, End, Merge, Output, Sink, Udf
from tempo_core.ir.ops.view_ops import Broadcast, Concat, Flip, Pad, Permute, Reshape, Slice

__all__ = [
    "Op", "Types", "check", "product", "same_shape",
    "Constant", "Eval", "Input", "Iota", "Random",
    "BINARY", "Binary", "COMPARE", "Cast", "Compare", "Function", "Identity", "UNARY", "Unary", "Where",
    "Argmax", "Argsort", "CumMax", "CumSum", "DiscountedSum", "LinearScan", "REDUCE", "Reduce",
    "Conv", "Dot",
    "Broadcast", "Concat", "Flip", "Pad", "Permute", "Reshape", "Slice",
    "Gather", "ScatterAdd",
    "Dataflow", "Dataflowed", "End", "Merge", "Output", "Sink", "Udf",
]  # fmt: skip

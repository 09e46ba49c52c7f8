"""The op set: one frozen dataclass an op, with its shape and dtype rule in `infer`.

Ops are stateless and know nothing of time: temporal indexing is on the graph's edges. An op's fields are its static
parameters; sizes may be symbolic expressions. Operands have equal shapes where an op is elementwise (the frontend inserts
`Broadcast` and `Cast`). Kernels, gradients, vectorization and padding rules are tables keyed by these classes, elsewhere.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from tempo_core.errors import DTypeError, ShapeError
from tempo_core.ir.types import TensorType, is_float
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, Symbol

Types = tuple[TensorType, ...]

UNARY = (
    "neg", "abs", "sign", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tanh", "sigmoid", "erf",
    "floor", "ceil", "round", "not", "isfinite",
)  # fmt: skip
BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "floordiv", "mod", "and", "or", "xor")
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
REDUCE = ("sum", "prod", "max", "min", "any", "all")


def check(condition: bool, message: str, error: type[ShapeError] | type[DTypeError] = ShapeError) -> None:
    if not condition:
        raise error(message)


def same_shape(name: str, types: Types) -> None:
    check(all(t.shape == types[0].shape for t in types), f"{name} takes operands of one shape, got {', '.join(map(str, types))}")


def product(sizes: tuple[Expr, ...]) -> Expr:
    return functools.reduce(operator.mul, sizes, Expr.of(1))


@dataclass(frozen=True)
class Op:
    """Base of all ops. `infer` gives the output types for the input types, or raises a `TempoError`."""

    def infer(self, inputs: Types) -> Types:
        raise AssertionError(f"{type(self).__name__} defines no shape rule")

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The steps and bounds in the op's own parameters."""
        found: set[Symbol] = set()
        for f in fields(self):
            value = getattr(self, f.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, (Expr, Bool)):
                    found |= part.symbols
        return frozenset(found)


# -- sources ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constant(Op):
    """A literal array: `data` holds its bytes in row-major order, `sizes` its shape."""

    dtype: str
    sizes: tuple[int, ...]
    data: bytes = field(repr=False)

    def infer(self, inputs: Types) -> Types:
        return (TensorType.of(self.dtype, *self.sizes),)


@dataclass(frozen=True)
class Iota(Op):
    """`0, 1, ..., size - 1` as int32."""

    size: Expr

    def infer(self, inputs: Types) -> Types:
        return (TensorType("int32", (self.size,)),)


@dataclass(frozen=True)
class Eval(Op):
    """The value of a symbolic expression (int32) or condition (bool) at the node's point, as a scalar."""

    value: Expr | Bool

    def infer(self, inputs: Types) -> Types:
        return (TensorType("bool" if isinstance(self.value, Bool) else "int32"),)


@dataclass(frozen=True)
class Input(Op):
    """An array that is fed when the program runs, by `name`."""

    name: str
    dtype: str
    shape: tuple[Expr, ...]

    def infer(self, inputs: Types) -> Types:
        return (TensorType(self.dtype, self.shape),)


@dataclass(frozen=True)
class Random(Op):
    """Random numbers as a function of (run seed, `stream`, coordinates): operands are int32 coordinates of one shape `c`.

    Scalar coordinates (`c = ()`) give `shape`; after vectorization they are vectors, and the result is `c + shape`.
    `kind`: "uniform" in [0, 1), "normal" (float32), or "bits" (uint32). `stream` numbers the calls in a program.
    """

    kind: str
    stream: int
    shape: tuple[Expr, ...]

    def infer(self, inputs: Types) -> Types:
        same = inputs[0].shape if inputs else ()
        check(all(t.shape == same for t in inputs), "random coordinates must have one shape")
        return (TensorType("uint32" if self.kind == "bits" else "float32", (*same, *self.shape)),)


# -- elementwise ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unary(Op):
    """An elementwise function of one operand; `fn` is one of `UNARY`."""

    fn: str

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        if self.fn == "not":
            check(x.dtype == "bool", f"not takes bool, got {x}", DTypeError)
        elif self.fn == "isfinite":
            return (TensorType("bool", x.shape),)
        elif self.fn not in ("neg", "abs", "sign"):
            check(is_float(x.dtype), f"{self.fn} takes a float tensor, got {x}; cast it with .astype('float32')", DTypeError)
        return inputs


@dataclass(frozen=True)
class Binary(Op):
    """An elementwise function of two operands of one type; `fn` is one of `BINARY`. Integer `floordiv`, `mod` round down."""

    fn: str

    def infer(self, inputs: Types) -> Types:
        a, b = inputs
        same_shape(self.fn, inputs)
        check(a.dtype == b.dtype, f"{self.fn} takes operands of one dtype, got {a} and {b}", DTypeError)
        if self.fn == "div":
            check(is_float(a.dtype), f"div takes floats, got {a}", DTypeError)
        if self.fn in ("add", "sub", "mul", "pow", "floordiv", "mod"):
            check(a.dtype != "bool", f"{self.fn} takes numbers, got bool; cast with .astype('int32')", DTypeError)
        if self.fn in ("and", "or", "xor"):
            check(not is_float(a.dtype), f"{self.fn} takes bool or integers, got {a}", DTypeError)
        return (a,)


@dataclass(frozen=True)
class Compare(Op):
    """An elementwise comparison giving bool; `fn` is one of `COMPARE`."""

    fn: str

    def infer(self, inputs: Types) -> Types:
        same_shape(self.fn, inputs)
        check(inputs[0].dtype == inputs[1].dtype, f"{self.fn} takes operands of one dtype, got {inputs}", DTypeError)
        return (TensorType("bool", inputs[0].shape),)


@dataclass(frozen=True)
class Where(Op):
    """`where(condition, a, b)`, elementwise."""

    def infer(self, inputs: Types) -> Types:
        condition, a, b = inputs
        same_shape("where", inputs)
        check(condition.dtype == "bool", f"where takes a bool condition, got {condition}", DTypeError)
        check(a.dtype == b.dtype, f"where takes values of one dtype, got {a} and {b}", DTypeError)
        return (a,)


@dataclass(frozen=True)
class Cast(Op):
    """Conversion to `dtype` (floats to integers round towards zero)."""

    dtype: str

    def infer(self, inputs: Types) -> Types:
        return (TensorType(self.dtype, inputs[0].shape),)


@dataclass(frozen=True)
class Identity(Op):
    """The operand itself; `stop_gradient` ends differentiation here."""

    stop_gradient: bool = False

    def infer(self, inputs: Types) -> Types:
        return inputs


# -- reductions, scans, sorting ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reduce(Op):
    """Reduction over `axes` (ascending), which disappear; `fn` is one of `REDUCE`."""

    fn: str
    axes: tuple[int, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(all(0 <= a < x.rank for a in self.axes), f"reduction over axes {self.axes} of {x}")
        if self.fn in ("any", "all"):
            check(x.dtype == "bool", f"{self.fn} takes bool, got {x}", DTypeError)
        elif self.fn in ("sum", "prod"):
            check(x.dtype != "bool", f"{self.fn} takes numbers, got {x}; cast it with .astype('int32')", DTypeError)
        return (TensorType(x.dtype, tuple(s for a, s in enumerate(x.shape) if a not in self.axes)),)


@dataclass(frozen=True)
class Argmax(Op):
    """The first position of the greatest element along `axis`, as int32."""

    axis: int

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        return (TensorType("int32", _without(x.shape, self.axis)),)


@dataclass(frozen=True)
class Argsort(Op):
    """The positions that sort the operand along `axis`, ascending and stable, as int32."""

    axis: int

    def infer(self, inputs: Types) -> Types:
        return (TensorType("int32", _along(inputs[0], self.axis).shape),)


@dataclass(frozen=True)
class CumSum(Op):
    """Cumulative sum along `axis`: `y[k] = x[0] + ... + x[k]`; with `reverse`, of the suffix `x[k] + ... + x[-1]`."""

    axis: int
    reverse: bool = False

    def infer(self, inputs: Types) -> Types:
        x = _along(inputs[0], self.axis)
        check(x.dtype != "bool", "cumsum takes numbers, got bool; cast with .astype('int32')", DTypeError)
        return inputs


@dataclass(frozen=True)
class LinearScan(Op):
    """First-order linear recurrence of (coefficients c, terms b) along `axis`: `y[k] = b[k] + c[k] * y[k - 1]`.

    With `reverse`, `y[k] = b[k] + c[k] * y[k + 1]`; the value before the first element is zero. Discounted returns and
    generalised advantage estimation are of this form.
    """

    axis: int
    reverse: bool = False

    def infer(self, inputs: Types) -> Types:
        same_shape("linear scan", inputs)
        check(inputs[0].dtype == inputs[1].dtype, f"a linear scan takes operands of one dtype, got {inputs}", DTypeError)
        return (_along(inputs[1], self.axis),)


@dataclass(frozen=True)
class DiscountedSum(Op):
    """`sum_k gamma**k * x[k]` along `axis`, which disappears."""

    axis: int
    gamma: float

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(is_float(x.dtype), f"discounted_sum takes floats, got {x}", DTypeError)
        return (TensorType(x.dtype, _without(x.shape, self.axis)),)


# -- contraction ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Dot(Op):
    """General contraction. Output dimensions: batch (in the order given), then the left's free, then the right's free."""

    left_contract: tuple[int, ...]
    right_contract: tuple[int, ...]
    left_batch: tuple[int, ...] = ()
    right_batch: tuple[int, ...] = ()

    def infer(self, inputs: Types) -> Types:
        a, b = inputs
        check(a.dtype == b.dtype, f"a contraction takes operands of one dtype, got {a} and {b}", DTypeError)
        for i, j in zip(self.left_contract + self.left_batch, self.right_contract + self.right_batch, strict=True):
            check(
                a.shape[i] == b.shape[j],
                f"contraction of {a} with {b}: size {a.shape[i]} (axis {i}) against {b.shape[j]} (axis {j})",
            )
        batch = tuple(a.shape[i] for i in self.left_batch)
        left = tuple(a.shape[i] for i in self.left_free(a.rank))
        right = tuple(b.shape[j] for j in self.right_free(b.rank))
        return (TensorType(a.dtype, batch + left + right),)

    def left_free(self, rank: int) -> tuple[int, ...]:
        return tuple(i for i in range(rank) if i not in self.left_contract + self.left_batch)

    def right_free(self, rank: int) -> tuple[int, ...]:
        return tuple(j for j in range(rank) if j not in self.right_contract + self.right_batch)


# -- views ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements, in row-major order, under another `shape` of as many elements."""

    shape: tuple[Expr, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(product(x.shape) == product(self.shape), f"cannot reshape {x} to ({', '.join(map(str, self.shape))})")
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Permute(Op):
    """Transposition: output axis k is input axis `order[k]`."""

    order: tuple[int, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        check(sorted(self.order) == list(range(x.rank)), f"cannot permute {x} by {self.order}")
        return (TensorType(x.dtype, tuple(x.shape[k] for k in self.order)),)


@dataclass(frozen=True)
class Broadcast(Op):
    """Repetition to `shape`: input axis k becomes output axis `axes[k]` (ascending, of equal size); the others repeat."""

    shape: tuple[Expr, ...]
    axes: tuple[int, ...]

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        fits = len(self.axes) == x.rank and all(self.shape[a] == s for a, s in zip(self.axes, x.shape, strict=True))
        check(fits, f"cannot broadcast {x} to ({', '.join(map(str, self.shape))}) along {self.axes}")
        return (TensorType(x.dtype, self.shape),)


@dataclass(frozen=True)
class Slice(Op):
    """Elements `start, start + stride, ... < stop` of `axis`; zeros where these are outside it.

    A `start` or `stop` that depends on steps is allowed.
    """

    axis: int
    start: Expr
    stop: Expr
    stride: int = 1

    def infer(self, inputs: Types) -> Types:
        (x,) = inputs
        size = (self.stop - self.start + (self.stride - 1)) // self.stride
        return (TensorType(x.dtype, _replaced(x.shape, self.axis, size)),)


@dataclass(frozen=True)
class Pad(Op):
    """`low` zeros before and `high` zeros after the elements of `axis`. The amounts may depend on steps.

    Negative amounts cut elements off.
    """

    axis: int
    low: Expr
    high: Expr

    def infer(self, inputs: Types) -> Types:
        x = _along(inputs[0], self.axis)
        return (TensorType(x.dtype, _replaced(x.shape, self.axis, x.shape[self.axis] + self.low + self.high)),)


@dataclass(frozen=True)
class Concat(Op):
    """The operands, one after the other along `axis`."""

    axis: int

    def infer(self, inputs: Types) -> Types:
        first = inputs[0]
        for other in inputs[1:]:
            check(other.dtype == first.dtype, f"concatenate takes one dtype, got {first} and {other}", DTypeError)
            check(
                _without(other.shape, self.axis) == _without(first.shape, self.axis),
                f"cannot concatenate {first} and {other} along axis {self.axis}",
            )
        total = functools.reduce(operator.add, (t.shape[self.axis] for t in inputs))
        return (TensorType(first.dtype, _replaced(first.shape, self.axis, total)),)


@dataclass(frozen=True)
class Flip(Op):
    """The elements of `axis` in reverse order."""

    axis: int

    def infer(self, inputs: Types) -> Types:
        return (_along(inputs[0], self.axis),)


# -- indexing by data -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gather(Op):
    """`x[..., index, ...]` along `axis`, for (x, int32 index): the index's dimensions stand where `axis` stood.

    The first `batch` dimensions of both operands are shared (`axis >= batch`). A scalar index removes the axis.
    Indices outside the axis are clamped to its ends. What an axis without elements gives is not defined.
    """

    axis: int
    batch: int = 0

    def infer(self, inputs: Types) -> Types:
        x, index = inputs
        check(index.dtype == "int32", f"an index tensor is int32, got {index}", DTypeError)
        check(self.batch <= self.axis < x.rank, f"cannot index axis {self.axis} of {x}")
        check(x.shape[: self.batch] == index.shape[: self.batch], f"batch dimensions of {x} and {index} differ")
        return (TensorType(x.dtype, (*x.shape[: self.axis], *index.shape[self.batch :], *x.shape[self.axis + 1 :])),)


@dataclass(frozen=True)
class ScatterAdd(Op):
    """Transpose of `Gather`: zeros with `size` elements along `axis`, to which (updates, int32 index) are added.

    Updates have the shape that `Gather(axis, batch)` gives for that index. Indices outside the axis are dropped.
    """

    axis: int
    size: Expr
    batch: int = 0

    def infer(self, inputs: Types) -> Types:
        updates, index = inputs
        check(index.dtype == "int32", f"an index tensor is int32, got {index}", DTypeError)
        wide = index.rank - self.batch
        check(
            updates.shape[: self.batch] == index.shape[: self.batch]
            and updates.shape[self.axis : self.axis + wide] == index.shape[self.batch :],
            f"cannot scatter {updates} by {index} along axis {self.axis}",
        )
        return (TensorType(updates.dtype, (*updates.shape[: self.axis], self.size, *updates.shape[self.axis + wide :])),)


# -- structure --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merge(Op):
    """The value of the first operand whose edge condition holds at the point: the node of a branching tensor."""

    type: TensorType

    def infer(self, inputs: Types) -> Types:
        return (self.type,)


@dataclass(frozen=True)
class Udf(Op):
    """A user's function of arrays. `kind` "jax": traceable by JAX; "host": called with NumPy arrays, never inside XLA.

    A `stateful` one is called once a point, in the order of the points, and is never removed, shared or vectorized.
    `fn` takes one array an operand and returns a sequence with one array an entry of `types`; it is compared by identity.
    """

    fn: Callable[..., Any]
    types: tuple[TensorType, ...]
    kind: str = "jax"
    stateful: bool = False
    name: str = "udf"

    def infer(self, inputs: Types) -> Types:
        return self.types

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(s.symbols for t in self.types for s in t.shape))


@dataclass(frozen=True)
class Sink(Op):
    """Hands its operands to `fn(*arrays, **point)` on the host; `point` maps step names to numbers. Gives nothing."""

    fn: Callable[..., Any]
    name: str = "sink"

    def infer(self, inputs: Types) -> Types:
        return ()


@dataclass(frozen=True)
class Output(Op):
    """A result of the program: its operand is handed to the caller under position `position`. Gives nothing."""

    position: int

    def infer(self, inputs: Types) -> Types:
        return ()


@dataclass(frozen=True, eq=False)
class Dataflowed:
    """The body of a fused island: `instructions` are (op, operand slots, where results go), over numbered slots.

    Slots `0 .. len(input_types) - 1` hold the island's operands; each instruction appends its outputs. `results` names
    the slots that the island gives, `slot_types` the type of every slot.
    """

    input_types: tuple[TensorType, ...]
    instructions: tuple[tuple[Op, tuple[int, ...], tuple[int, ...]], ...]
    results: tuple[int, ...]
    slot_types: tuple[TensorType, ...]

    @property
    def output_types(self) -> tuple[TensorType, ...]:
        return tuple(self.slot_types[slot] for slot in self.results)


@dataclass(frozen=True)
class Dataflow(Op):
    """A fused island: a small acyclic program of ops with one domain, run as one statement (`passes/fuse.py`)."""

    body: Dataflowed

    def infer(self, inputs: Types) -> Types:
        return self.body.output_types

    @property
    def symbols(self) -> frozenset[Symbol]:
        return frozenset().union(*(op.symbols for op, _, _ in self.body.instructions))


def _along(type: TensorType, axis: int) -> TensorType:
    check(0 <= axis < type.rank, f"axis {axis} of a tensor with {type.rank} dimensions")
    return type


def _without(shape: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
    check(0 <= axis < len(shape), f"axis {axis} of a tensor with {len(shape)} dimensions")
    return (*shape[:axis], *shape[axis + 1 :])


def _replaced(shape: tuple[Expr, ...], axis: int, size: Expr) -> tuple[Expr, ...]:
    check(0 <= axis < len(shape), f"axis {axis} of a tensor with {len(shape)} dimensions")
    return (*shape[:axis], size, *shape[axis + 1 :])

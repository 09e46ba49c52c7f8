"""What users hold: recurrent tensors, with their methods and operators, and expressions of steps and bounds.

Methods and operators are declared here, with their signatures. The functions of the same names (`FUNCTIONS`) compute them: they are written
with tensors, and so stand above this file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar, Union

import numpy as np

from tempo_core import errors
from tempo_core.frontend.aliases import Array, ArrayLike, Axes, Key, Shape, Slice, SupportsArray
from tempo_core.frontend.arguments import Call, checked, name_annotation
from tempo_core.frontend.array_uses import ArrayUses
from tempo_core.frontend.base import BaseTensor
from tempo_core.frontend.base_context import BaseContext
from tempo_core.frontend.expressions import Expression
from tempo_core.ir import ops
from tempo_core.ir.graph import Edge, Node, compose
from tempo_core.ir.types import is_float
from tempo_core.symbolic.condition import TRUE, Bool, conjunction
from tempo_core.symbolic.domain import Domain, Index, Point, identity, is_own_point, step_order
from tempo_core.symbolic.expr import Expr, IntoExpr, Symbol, maximum, minimum
from tempo_core.symbolic.limits import UpTo

F = TypeVar("F", bound=Callable[..., Any])
FUNCTIONS: dict[str, Callable[..., Any]] = {}  # by name: they compute the methods and operators of tensors


def computes(function: F) -> F:
    """Decorator of a function that computes the method of its name."""
    FUNCTIONS[function.__name__] = function
    return function


def method_of(name: str) -> Callable[[F], F]:
    """Decorator of a method that is declared here, and computed by the function `name`. Raises ArgumentError for wrong names of arguments."""

    def decorator(declared: F) -> F:
        call = Call(declared, "")

        @functools.wraps(declared)
        def method(*args: Any, **keywords: Any) -> Any:
            call.check_count(args, keywords)
            return FUNCTIONS[name](*args, **keywords)

        return method  # type: ignore[return-value]

    return decorator


def method(declared: F) -> F:
    """Decorator of a method that is computed by the function of the same name."""
    return method_of(declared.__name__)(declared)


def computed_by(op: ops.Unary | ops.Binary | ops.Compare, name: str = "") -> Callable[[F], F]:
    """Decorator of a function that is declared without a body, and computed by `op`. Users know it as `name`, if that is another name.

    In the class of tensors, it is a function and a method at once.
    """

    def decorator(declared: F) -> F:
        @functools.wraps(declared)
        def function(*operands: Value, **named: Value) -> Tensor:
            values = (*operands, *(named[key] for key in ("x", "y") if key in named))
            tensors = (FUNCTIONS["as_tensor"](*values),) if isinstance(op, ops.Unary) else FUNCTIONS["aligned"](*values)
            return apply(op, *(_converted(x, op.function.takes) for x in tensors))

        return checked(function, name)  # type: ignore[return-value]

    return decorator


def _converted(x: Tensor, dtypes: tuple[str, ...]) -> Tensor:
    """An operand in a dtype that a function takes: bools count as 0 and 1, and integers become floats."""
    return x if x.dtype in dtypes or is_float(x.dtype) else x.astype("int32" if "int32" in dtypes else "float32")


def operator_of(name: str, mirrored: bool = False) -> Callable[[F], F]:
    """Decorator of an operator that the function `name` computes; a `mirrored` one is for a tensor on the right."""

    def decorator(declared: F) -> F:
        @functools.wraps(declared)
        def method(self: Tensor, other: Value) -> Tensor:
            if getattr(other, "__array_priority__", 0) > self.__array_priority__:
                return NotImplemented  # the other operand computes it: a complex number
            return FUNCTIONS[name](other, self) if mirrored else FUNCTIONS[name](self, other)

        return method  # type: ignore[return-value]

    return decorator


class Tensor(BaseTensor, ArrayUses):
    """A recurrent tensor: a value of type `dtype[shape]` at every point of its `domain`.

    Indexing with `[]` indexes the steps of the domain, in order: points (`t - 1`, `0`), slices (`t:T`), conditions
    (`i % 5 == 0`). A slice gives a leading spatial dimension. Spatial dimensions are indexed with `.index` and `.spatial`.
    Operands of operators broadcast; numbers take the tensor's dtype (`tp.promote`).
    """

    __array_priority__ = 1000  # with an array on the left, NumPy leaves the operator to the tensor

    read_at: str | None = None  # the user's line, of a read of another tensor
    earlier: Tensor | None = None  # the value at points before the start of a step, which reads of this tensor may reach

    @property
    def shape(self) -> Sizes:
        """The sizes, as expressions. `x.shape == (3, T)` compares the expressions, as they are written."""
        return Sizes(map(UserExpr, self.type.shape))

    def __getitem__(self, key: Key) -> Tensor:
        """The tensor at other points: `x[t - 1]`, `x[0]`, `x[i, t:T]`, `x[t % 5 == 0]`."""
        indices, condition = self._indices(key)
        read = self._read(indices, condition) if self.earlier is None else FUNCTIONS["with_earlier"](self, indices, condition)
        read.read_at = errors.user_location()
        return read

    def _read(self, indices: Sequence[Index], condition: Bool = TRUE) -> Tensor:
        """The tensor at other points, all of which it has."""
        moved, keys = self._moved_around(indices), dict(zip(self.domain.steps, map(_as_key, indices), strict=True))
        if moved and any(moved & self.context.around(i.symbols) for s, i in zip(keys, indices, strict=True) if s not in moved):
            inside = self[tuple(s.expr if s in moved else key for s, key in keys.items())]  # of `x[0, K - 1]`: x[t, K - 1]
            return inside[tuple(key if s in moved else s.expr for s, key in keys.items() if s in inside.domain.steps)]
        is_fixed = moved.intersection(self.context.around(self.edge.symbols))
        edge = None if is_fixed else compose(self.edge, self.domain.steps, indices)
        base = self
        if edge is None:  # the edge cannot express the index: read a copy of this tensor instead
            base = apply(ops.Identity(), self)
            edge = replace(base.edge, index=tuple(indices))
        ragged = self._ragged_step(indices)
        if ragged is not None:
            raise errors.IndexingError(
                f"cannot slice {self!r} over {ragged}: its shape varies with {ragged}, and a slice stacks equal shapes",
                hint="reduce the dimension that varies, then slice: x.sum(0)[0:T]",
            )
        points = {s: i.expr for s, i in zip(self.domain.steps, indices, strict=True) if isinstance(i, Point)}
        carried = self.user_condition
        if any(s not in points for s in carried.steps):
            raise errors.IndexingError(
                f"cannot slice {self!r}: it exists only where {carried}, so the slice would have holes",
                hint="slice first, then index with the condition: x[0:T].sum(0)[t % 2 == 0]",
            )
        carried = carried.substitute(points)
        return view(self.context, edge, conjunction(condition, carried))

    def _moved_around(self, indices: Sequence[Index]) -> frozenset[Symbol]:
        """The steps that some bounds vary with, of those that an index reads at another point."""
        around = self.context.around(self.context.outer)
        return frozenset(s for s, i in zip(self.domain.steps, indices, strict=True) if s in around and not is_own_point(i, s))

    def named(self, name: str) -> Tensor:
        """The same tensor under a name that plans, drawings and errors use."""
        if not isinstance(name, str):
            raise errors.ArgumentError(f"{name!r} cannot name a tensor", hint='give a string: x.named("x")')
        self.context.graph.put(replace(self.node, name=name))
        return self

    @method
    def before(self, value: Value) -> Tensor:
        """The same tensor, which is `value` at all points before the start of a step: `x.before(0.0)[t - 1]` is 0 at t = 0.

        A slice such as `x.before(0.0)[t - 3 : t]` then always has three elements. `value` broadcasts to the shape of x, and may vary
        with steps of x that are read at points of theirs.
        """

    @property
    def spatial(self) -> Spatial:
        """Indexes the dimensions, as NumPy does: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`."""
        return Spatial(self)

    def materialized(self) -> Tensor:
        """This tensor as a node of its own, read at the node's own point."""
        source = self.node
        return self if self.edge.is_own_point(source.domain) else apply(ops.Identity(), self)

    # -- gradients ----------------------------------------------------------------------------------------------------

    @property
    def grad(self) -> Tensor:
        """The gradient that `backward` computed. It has the tensor's shape, dtype and domain."""
        source = self.node
        key = (self.edge.source, self.edge.output)
        if key not in self.context.gradients:
            raise errors.GradientError(
                f"{self!r} has no gradient",
                hint="call loss.backward() first: it gives gradients to inputs with requires_grad=True, and to recurrences without an "
                "update so far. For any other tensor: tp.grad(loss, [x])",
            )
        gradient = view(self.context, self.context.gradients[key])
        steps = self.edge.by_step(source.domain)
        return gradient[tuple(_as_key(steps[s]) for s in gradient.domain.steps)] if gradient.domain.steps else gradient

    @method
    def backward(self) -> None:
        """Differentiate the sum of this tensor over its points and elements. The gradients are then in `.grad` of the leaves; calls add up.

        Leaves are inputs with `requires_grad` and recurrences whose update is not assigned yet (parameters).
        """

    def detach(self) -> Tensor:
        """The same values, through which no gradient flows."""
        return apply(ops.Identity(stop_gradient=True), self)

    # -- reductions and scans --------------------------------------------------------------------------------------------

    @checked
    def sum(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum over `axis`; narrow integers and bools are summed in 32 bits."""
        return FUNCTIONS["reduced"]("sum", x, axis, keepdims)

    @checked
    def prod(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The product over `axis`; narrow integers and bools are multiplied in 32 bits."""
        return FUNCTIONS["reduced"]("prod", x, axis, keepdims)

    @checked
    def max(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The greatest element along `axis`; NaN if an element is NaN."""
        return FUNCTIONS["reduced"]("max", x, axis, keepdims)

    @checked
    def min(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The least element along `axis`; NaN if an element is NaN."""
        return FUNCTIONS["reduced"]("min", x, axis, keepdims)

    @checked
    def any(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether any element along `axis` is not 0, as a bool."""
        return FUNCTIONS["reduced"]("any", x, axis, keepdims)

    @checked
    def all(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether all elements along `axis` are not 0, as a bool."""
        return FUNCTIONS["reduced"]("all", x, axis, keepdims)

    @checked
    def count_nonzero(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The number of elements that are not 0, as int32."""
        return (x != 0).sum(axis, keepdims)

    @checked
    def mean(x: Tensor, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean over `axis`. A size that varies with a step is the divisor at each point."""
        if x.dtype == "float16":  # the sum may be beyond its range
            return x.astype("float32").mean(axis, keepdims).astype("float16")
        x = x if is_float(x.dtype) else x.astype("float32")
        return FUNCTIONS["div"](x.sum(axis, keepdims), FUNCTIONS["count"](x, axis, 0))

    @checked
    def var(x: Tensor, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The variance over `axis`: the mean squared distance from the mean; with `ddof=1`, the variance of a sample."""
        if x.dtype == "float16":
            return x.astype("float32").var(axis, keepdims, ddof).astype("float16")
        centred = (x - x.mean(axis, keepdims=True)).square()
        if not ddof:
            return centred.mean(axis, keepdims)
        return FUNCTIONS["div"](centred.sum(axis, keepdims), FUNCTIONS["count"](x, axis, ddof))

    @checked
    def std(x: Tensor, axis: Axes = None, keepdims: bool = False, ddof: int = 0) -> Tensor:
        """The standard deviation over `axis`. Its gradient is 0 where it is 0."""
        return FUNCTIONS["root"](x.var(axis, keepdims, ddof))

    @checked
    def norm(x: Tensor, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Tensor:
        """The norm of vectors along `axis` (of all elements by default): `ord` 1, 2 or infinite. Its gradient is 0 at 0."""
        if ord == 2:
            return FUNCTIONS["root"]((x if is_float(x.dtype) else x.astype("float32")).square().sum(axis, keepdims))
        if ord not in (1, math.inf):
            raise errors.ArgumentError(f"a norm cannot have the order {ord}", hint="ord=1, ord=2 or ord=math.inf")
        return x.abs().sum(axis, keepdims) if ord == 1 else x.abs().max(axis, keepdims)

    @checked
    def argmax(x: Tensor, axis: int = -1) -> Tensor:
        """The first position of the greatest element along `axis`, as int32. NaN counts as the greatest; without elements it is 0."""
        return apply(ops.Argmax(FUNCTIONS["one_axis"](x, axis)), x)

    @checked
    def argmin(x: Tensor, axis: int = -1) -> Tensor:
        """The first position of the least element along `axis`, as int32. NaN counts as the least; without elements it is 0."""
        return FUNCTIONS["reversed_order"](x).argmax(axis)

    @checked
    def argsort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
        """The positions that sort `x` along `axis`, as int32; equal elements stay in order, NaN comes last."""
        return apply(ops.Argsort(FUNCTIONS["one_axis"](x, axis)), FUNCTIONS["reversed_order"](x) if descending else x)

    @checked
    def softmax(x: Tensor, axis: int = -1) -> Tensor:
        """`exp(x) / sum(exp(x))` along `axis`, without overflow."""
        shifted = (x - x.max(axis, keepdims=True).detach()).exp()
        return shifted / shifted.sum(axis, keepdims=True)

    @checked
    def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
        """`log(softmax(x))` along `axis`, without overflow."""
        shifted = x - x.max(axis, keepdims=True).detach()
        return shifted - shifted.exp().sum(axis, keepdims=True).log()

    @method
    def logsumexp(self, axis: int = -1, keepdims: bool = False) -> Tensor:
        """`log(sum(exp(x)))` along `axis`, without overflow."""

    @checked
    def cumsum(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative sum along `axis`; with `reverse`, of the suffixes."""
        return apply(ops.CumSum(FUNCTIONS["one_axis"](x, axis), reverse), FUNCTIONS["summable"](x))

    @checked
    def cumprod(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative product along `axis`; with `reverse`, of the suffixes. Once an element is 0, the products are 0, whatever the others are."""
        x, at = FUNCTIONS["summable"](x), FUNCTIONS["one_axis"](x, axis)
        size = x.type.shape[at]
        start = FUNCTIONS["arange"](size) == (size - 1 if reverse else 0)
        first = apply(ops.Broadcast(x.type.shape, (at,)), start)
        where = FUNCTIONS["where"]
        return FUNCTIONS["linear_scan"](where(first, 0, x), where(first, x, 0), at, reverse)

    @checked
    def cummax(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative maximum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return apply(ops.CumMax(FUNCTIONS["one_axis"](x, axis), reverse), x)

    @checked
    def cummin(x: Tensor, axis: int = 0, reverse: bool = False) -> Tensor:
        """The cumulative minimum along `axis`; with `reverse`, of the suffixes. Of equal elements, the first has the gradient."""
        return FUNCTIONS["reversed_order"](FUNCTIONS["reversed_order"](x).cummax(axis, reverse))

    @checked
    def discounted_sum(x: Tensor, gamma: float, axis: int = 0) -> Tensor:
        """`x[0] + gamma * x[1] + gamma**2 * x[2] + ...` along `axis`."""
        x = x if is_float(x.dtype) else x.astype("float32")
        return apply(ops.DiscountedSum(FUNCTIONS["one_axis"](x, axis), float(gamma)), x)

    # -- shapes ----------------------------------------------------------------------------------------------------------

    @method
    def reshape(self, *shape: Shape) -> Tensor:
        """The same elements in another shape; one size may be -1."""

    @checked
    def flatten(x: Tensor) -> Tensor:
        """All elements, in row-major order, along one axis."""
        return x.reshape(ops.product(x.type.shape))

    @checked
    def transpose(x: Tensor, *axes: int | Sequence[int]) -> Tensor:
        """`x` with its axes in the order of `axes`; reversed by default."""
        first = axes[0] if len(axes) == 1 else None
        names: Any = tuple(first) if isinstance(first, (tuple, list)) else axes
        order = tuple(FUNCTIONS["one_axis"](x, a) for a in names) if names else tuple(reversed(range(x.rank)))
        if sorted(order) != list(range(x.rank)):
            raise errors.ShapeError(
                f"cannot transpose {x!r} by {names}",
                hint=f"name each of its {x.rank} axes once: x.transpose({', '.join(map(str, reversed(range(x.rank))))})",
            )
        return x if order == tuple(range(x.rank)) else apply(ops.Permute(order), x)

    @checked
    def swapaxes(x: Tensor, first: int, second: int) -> Tensor:
        """`x` with two axes exchanged."""
        a, b = FUNCTIONS["one_axis"](x, first), FUNCTIONS["one_axis"](x, second)
        order = list(range(x.rank))
        order[a], order[b] = b, a
        return x.transpose(order)

    @checked
    def moveaxis(x: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
        """`x` with some axes moved to other places; the others keep their order."""
        origins = [FUNCTIONS["one_axis"](x, a) for a in ((source,) if isinstance(source, int) else source)]
        places = [FUNCTIONS["one_axis"](x, a) for a in ((destination,) if isinstance(destination, int) else destination)]
        if len(origins) != len(places) or len(set(origins)) != len(origins) or len(set(places)) != len(places):
            raise errors.ShapeError(
                f"cannot move the axes {source} of {x!r} to {destination}", hint="give each axis one new place: x.moveaxis(0, -1)"
            )
        order = [a for a in range(x.rank) if a not in origins]
        for place, origin in sorted(zip(places, origins, strict=True)):
            order.insert(place, origin)
        return x.transpose(*order) if x.rank else x

    @checked
    def expand_dims(x: Tensor, axis: int) -> Tensor:
        """`x` with a new dimension of size 1 at `axis`."""
        if not -x.rank - 1 <= axis <= x.rank:
            raise errors.ShapeError(f"a new axis {axis} does not fit into {x!r}", hint=f"axes go from {-x.rank - 1} to {x.rank}")
        at = axis % (x.rank + 1)
        return x.reshape((*x.type.shape[:at], 1, *x.type.shape[at:]))

    @checked
    def squeeze(x: Tensor, axis: Axes = None) -> Tensor:
        """`x` without the axes in `axis`, whose sizes are 1; by default without all axes of size 1."""
        axes = [a for a in range(x.rank) if x.type.shape[a] == 1] if axis is None else FUNCTIONS["axes_of"](x, axis)
        for a in axes:
            if x.type.shape[a] != 1:
                raise errors.ShapeError(
                    f"cannot squeeze axis {a} of {x!r}: its size is {x.type.shape[a]}",
                    hint="only an axis of size 1 can be removed. To read one position of another axis: x.index(axis, i)",
                )
        return x.reshape(tuple(s for a, s in enumerate(x.type.shape) if a not in axes))

    @method
    def broadcast_to(self, shape: Shape) -> Tensor:
        """`x` repeated to `shape` by NumPy's rule."""

    @checked
    def flip(x: Tensor, axis: int | Sequence[int] = 0) -> Tensor:
        """The elements of an axis, or of several, in reverse order."""
        for each in FUNCTIONS["axes_of"](x, axis):
            x = apply(ops.Flip(each), x)
        return x

    @method
    def split(self, parts: int | Sequence[IntoExpr], axis: int = 0) -> list[Tensor]:
        """`x` cut along `axis`: into `parts` equal parts, or at the positions in `parts`, which may be expressions."""

    @checked
    def repeat(x: Tensor, times: IntoExpr, axis: int | None = None) -> Tensor:
        """Each element `times` times in a row along `axis` (of all elements, flattened, by default)."""
        if axis is None:
            return x.flatten().repeat(times, 0)
        at, count = FUNCTIONS["one_axis"](x, axis), Expr.of(times)
        shape = (*x.type.shape[: at + 1], count, *x.type.shape[at + 1 :])
        spread = apply(ops.Broadcast(shape, tuple(k for k in range(len(shape)) if k != at + 1)), x)
        return spread.reshape((*x.type.shape[:at], x.type.shape[at] * count, *x.type.shape[at + 1 :]))

    @checked
    def tile(x: Tensor, times: Shape) -> Tensor:
        """The whole of `x` repeated along its last axes, with one number in `times` for each. More numbers than axes add axes in front."""
        counts = FUNCTIONS["shape_of"](times)
        rank = max(len(counts), x.rank)
        counts = (*(Expr.of(1),) * (rank - len(counts)), *counts)
        sizes = (*(Expr.of(1),) * (rank - x.rank), *x.type.shape)
        shape = tuple(part for pair in zip(counts, sizes, strict=True) for part in pair)
        spread = apply(ops.Broadcast(shape, tuple(range(1, 2 * rank, 2))), x.reshape(sizes))
        return spread.reshape(tuple(c * s for c, s in zip(counts, sizes, strict=True)))

    # -- elements --------------------------------------------------------------------------------------------------------

    @checked
    def index(x: Tensor, axis: int, position: Value) -> Tensor:
        """`x` at `position` along `axis`: an int, an expression of steps, or an int32 tensor (whose shape replaces the axis)."""
        return FUNCTIONS["at_position"](x, axis, position)

    @checked
    def take(x: Tensor, indices: Value | Sequence[Value], axis: int | Sequence[int] = 0) -> Tensor:
        """`x[indices]` along `axis`: the shape of `indices` replaces the axis. A position outside of the axis reads its nearest end.

        `take(x, (i, j), (0, 1))` is `x[i, j]`: the shape to which `i` and `j` broadcast replaces the axes, which follow one another.
        """
        return FUNCTIONS["at_position"](*FUNCTIONS["along_one_axis"](x, indices, axis, nearest=True))

    @checked
    def take_along_axis(x: Tensor, indices: Tensor, axis: int = -1) -> Tensor:
        """The elements at `indices` along `axis`, with separate positions for each place on the other axes.

        The other axes broadcast. `take_along_axis(x, argsort(x))` is `sort(x)`.
        """
        if indices.rank != x.rank:
            raise errors.ShapeError(
                f"cannot take {indices!r} along an axis of {x!r}",
                hint="both need the same number of dimensions: tp.take_along_axis(x, tp.argsort(x))",
            )
        at = FUNCTIONS["one_axis"](x, axis)
        values, positions = x.moveaxis(at, -1), indices.astype("int32").moveaxis(at, -1)
        batch = FUNCTIONS["broadcast_shapes"](values.type.shape[:-1], positions.type.shape[:-1])
        values, positions = (v.broadcast_to((*batch, v.type.shape[-1])) for v in (values, positions))
        return apply(ops.Gather(x.rank - 1, x.rank - 1), values, positions).moveaxis(-1, at)

    @checked
    def index_add(x: Tensor, indices: Value | Sequence[Value], updates: Value, axis: int | Sequence[int] = 0) -> Tensor:
        """`x` with updates added at `indices` along `axis`: `scatter` with the mode "add"."""
        return x.scatter(indices, updates, axis, "add")

    @checked
    def scatter(
        x: Tensor, indices: Value | Sequence[Value], updates: Value, axis: int | Sequence[int] = 0, mode: str = "set"
    ) -> Tensor:
        """`x` with updates in place of the elements at `indices` along `axis`, or added to them, multiplied with them, ...

        `mode`: "set", "add", "mul", "min" or "max". Of several updates for a position, "set" takes the last, and the others all of them. An update
        outside of the axis is dropped. Updates broadcast to the shape of `take(x, indices, axis)`. `scatter(x, (i, j), y, (0, 1))` writes at
        `x[i, j]`: the axes follow one another, and there is one tensor of positions for each.
        """
        return FUNCTIONS["scattered"](x, indices, updates, axis, mode)

    @checked
    def one_hot(x: Tensor, size: IntoExpr, dtype: str = "float32", axis: int = -1) -> Tensor:
        """Ones at the positions `x` along a new axis of `size` elements, the last by default. A position outside gives only zeros."""
        if is_float(x.dtype) or x.dtype == "bool":
            raise errors.DTypeError(f"one_hot of {x!r}: positions are integers", hint='convert it: x.astype("int32")')
        return (x.expand_dims(x.rank) == FUNCTIONS["arange"](size)).astype(dtype).moveaxis(-1, axis)

    @method
    def roll(self, shift: IntoExpr, axis: int = 0) -> Tensor:
        """The elements of `axis` moved on by `shift` places (an int or an expression); those past the end come in at the start."""

    @checked
    def sort(x: Tensor, axis: int = -1, descending: bool = False) -> Tensor:
        """`x` sorted along `axis`, in ascending order by default; NaN comes last."""
        return x.take_along_axis(x.argsort(axis, descending), axis)

    @checked
    def top_k(x: Tensor, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
        """The `k` greatest elements along `axis`, greatest first, and their positions (int32). Equal elements keep their order."""
        at = FUNCTIONS["one_axis"](x, axis)
        size = x.type.shape[at]
        if k < 0 or (size.is_constant and k > size.constant):
            raise errors.ShapeError(f"cannot take the {k} greatest of axis {axis} of {x!r}: it has {size} elements")
        if size.is_constant:
            positions = apply(ops.Argsort(at, k), FUNCTIONS["reversed_order"](x))
        else:
            positions = apply(ops.Slice(at, Expr.of(0), Expr.of(k)), x.argsort(at, descending=True))
        return x.take_along_axis(positions, at), positions

    @checked
    def median(x: Tensor, axis: int = -1) -> Tensor:
        """The middle element along `axis` in sorted order, or the mean of the two middle elements. NaN counts as the greatest."""
        size = x.type.shape[FUNCTIONS["one_axis"](x, axis)]
        ordered = (x if is_float(x.dtype) else x.astype("float32")).sort(axis)
        return (ordered.index(axis, (size - 1) // 2) + ordered.index(axis, size // 2)) * 0.5

    @method
    def diagonal(self, offset: int = 0) -> Tensor:
        """The elements of the last two axes at which column - row is `offset`, as one last axis."""

    @checked
    def trace(x: Tensor, offset: int = 0) -> Tensor:
        """The sum of a diagonal of the last two axes."""
        return x.diagonal(offset).sum(-1)

    @checked
    def tril(x: Tensor, offset: int = 0) -> Tensor:
        """The lower triangle of the last two axes, where column - row is at most `offset`; zeros above it."""
        columns, rows = FUNCTIONS["places"](x, offset)
        return FUNCTIONS["where"](columns <= rows, x, 0)

    @checked
    def triu(x: Tensor, offset: int = 0) -> Tensor:
        """The upper triangle of the last two axes, where column - row is at least `offset`; zeros below it."""
        columns, rows = FUNCTIONS["places"](x, offset)
        return FUNCTIONS["where"](columns >= rows, x, 0)

    # -- elementwise functions -------------------------------------------------------------------------------------------

    @checked
    def astype(x: Tensor, dtype: str) -> Tensor:
        """`x` converted to `dtype`.

        A float becomes an integer by rounding towards zero; a float out of range becomes the nearest integer in the range, NaN becomes
        0. Integers wrap around. A float becomes a narrower float by rounding to the nearest, or infinite. As bools, all numbers but 0
        are True, and so is NaN.
        """
        FUNCTIONS["check_dtype"](dtype)
        return x if x.dtype == dtype else apply(ops.Cast(dtype), x)

    @computed_by(ops.Unary("abs"))
    def abs(x: Value) -> Tensor:
        """`|x|`, elementwise."""

    __abs__ = abs

    @computed_by(ops.Unary("round"))
    def round(x: Value) -> Tensor:
        """The nearest whole number, as a float; halfway between two, the even one."""

    @checked
    def clip(x: Tensor, low: Value | None = None, high: Value | None = None) -> Tensor:
        """`x` limited to the range from `low` to `high`; either end may be left out."""
        x = x if low is None else FUNCTIONS["maximum_of"](x, low)
        return x if high is None else FUNCTIONS["minimum_of"](x, high)

    @computed_by(ops.Unary("exp"))
    def exp(x: Value) -> Tensor:
        """`e ** x`, elementwise."""

    @computed_by(ops.Unary("expm1"))
    def expm1(x: Value) -> Tensor:
        """`exp(x) - 1`, precise near 0."""

    @computed_by(ops.Unary("log"))
    def log(x: Value) -> Tensor:
        """The natural logarithm, elementwise."""

    @computed_by(ops.Unary("log1p"))
    def log1p(x: Value) -> Tensor:
        """`log(1 + x)`, precise near 0."""

    @computed_by(ops.Unary("sqrt"))
    def sqrt(x: Value) -> Tensor:
        """The square root, elementwise."""

    @computed_by(ops.Unary("rsqrt"))
    def rsqrt(x: Value) -> Tensor:
        """`1 / sqrt(x)`, elementwise."""

    @checked
    def square(x: Value) -> Tensor:
        """`x * x`."""
        tensor: Tensor = FUNCTIONS["as_tensor"](x)
        return tensor * tensor

    @checked
    def reciprocal(x: Value) -> Tensor:
        """`1 / x`."""
        return FUNCTIONS["div"](1, x)

    @computed_by(ops.Unary("sigmoid"))
    def sigmoid(x: Value) -> Tensor:
        """`1 / (1 + exp(-x))`, elementwise."""

    @computed_by(ops.Unary("tanh"))
    def tanh(x: Value) -> Tensor:
        """The hyperbolic tangent, elementwise."""

    @computed_by(ops.Unary("erf"))
    def erf(x: Value) -> Tensor:
        """The error function, elementwise."""

    @computed_by(ops.Unary("sin"))
    def sin(x: Value) -> Tensor:
        """The sine of radians, elementwise."""

    @computed_by(ops.Unary("cos"))
    def cos(x: Value) -> Tensor:
        """The cosine of radians, elementwise."""

    @computed_by(ops.Unary("sign"))
    def sign(x: Value) -> Tensor:
        """-1, 0 or 1, elementwise."""

    @computed_by(ops.Unary("floor"))
    def floor(x: Value) -> Tensor:
        """The greatest whole number that is not above `x`, as a float."""

    @computed_by(ops.Unary("ceil"))
    def ceil(x: Value) -> Tensor:
        """The least whole number that is not below `x`, as a float."""

    @computed_by(ops.Unary("trunc"))
    def trunc(x: Value) -> Tensor:
        """`x` without its fraction, as a float."""

    @computed_by(ops.Unary("isfinite"))
    def isfinite(x: Value) -> Tensor:
        """Whether each element is neither infinite nor NaN, as a bool."""

    @checked
    def isinf(x: Value) -> Tensor:
        """Whether each element is infinite, as a bool."""
        tensor: Tensor = FUNCTIONS["as_tensor"](x)
        return ~(tensor.isfinite() | tensor.isnan())

    @computed_by(ops.Unary("isnan"))
    def isnan(x: Value) -> Tensor:
        """Whether each element is NaN, as a bool."""

    @checked
    def relu(x: Value) -> Tensor:
        """`max(x, 0)`. Its gradient at 0 is 0."""
        return FUNCTIONS["where"](FUNCTIONS["less_equal"](x, 0), 0, x)

    @checked
    def silu(x: Value) -> Tensor:
        """`x * sigmoid(x)` (Elfwing et al., 2018)."""
        return FUNCTIONS["gated"](x, FUNCTIONS["sigmoid"], 1000)

    @method
    def softplus(self) -> Tensor:
        """`log(1 + exp(x))`, without overflow."""

    @checked
    def gelu(x: Value, approximate: bool = False) -> Tensor:
        """GELU (Hendrycks and Gimpel, 2016): `x * Φ(x)`, exactly, or by the tanh formula of the paper."""
        return FUNCTIONS["gated"](x, FUNCTIONS["tanh_gate"] if approximate else FUNCTIONS["normal_gate"], 50)

    # -- operators -------------------------------------------------------------------------------------------------------

    @operator_of("add")
    def __add__(self, other: Value) -> Tensor: ...
    @operator_of("add", mirrored=True)
    def __radd__(self, other: Value) -> Tensor: ...
    @operator_of("sub")
    def __sub__(self, other: Value) -> Tensor: ...
    @operator_of("sub", mirrored=True)
    def __rsub__(self, other: Value) -> Tensor: ...
    @operator_of("mul")
    def __mul__(self, other: Value) -> Tensor: ...
    @operator_of("mul", mirrored=True)
    def __rmul__(self, other: Value) -> Tensor: ...
    @operator_of("div")
    def __truediv__(self, other: Value) -> Tensor: ...
    @operator_of("div", mirrored=True)
    def __rtruediv__(self, other: Value) -> Tensor: ...
    @operator_of("floordiv")
    def __floordiv__(self, other: Value) -> Tensor: ...
    @operator_of("floordiv", mirrored=True)
    def __rfloordiv__(self, other: Value) -> Tensor: ...
    @operator_of("mod")
    def __mod__(self, other: Value) -> Tensor: ...
    @operator_of("mod", mirrored=True)
    def __rmod__(self, other: Value) -> Tensor: ...
    @operator_of("power")
    def __pow__(self, other: Value) -> Tensor: ...
    @operator_of("power", mirrored=True)
    def __rpow__(self, other: Value) -> Tensor: ...
    @operator_of("matmul")
    def __matmul__(self, other: Value) -> Tensor: ...
    @operator_of("matmul", mirrored=True)
    def __rmatmul__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_and")
    def __and__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_and", mirrored=True)
    def __rand__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_or")
    def __or__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_or", mirrored=True)
    def __ror__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_xor")
    def __xor__(self, other: Value) -> Tensor: ...
    @operator_of("bitwise_xor", mirrored=True)
    def __rxor__(self, other: Value) -> Tensor: ...
    @operator_of("less")
    def __lt__(self, other: Value) -> Tensor: ...
    @operator_of("less_equal")
    def __le__(self, other: Value) -> Tensor: ...
    @operator_of("greater")
    def __gt__(self, other: Value) -> Tensor: ...
    @operator_of("greater_equal")
    def __ge__(self, other: Value) -> Tensor: ...
    @operator_of("equal")
    def __eq__(self, other: Value) -> Tensor: ...  # type: ignore[override]
    @operator_of("not_equal")
    def __ne__(self, other: Value) -> Tensor: ...  # type: ignore[override]

    def __hash__(self) -> int:
        return id(self)

    def __neg__(self) -> Tensor:
        return FUNCTIONS["neg"](self)

    def __invert__(self) -> Tensor:
        return FUNCTIONS["bitwise_not"](self)

    def __pos__(self) -> Tensor:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **keywords: Any) -> Tensor:
        """Operators with an array on the left, such as `array + x`. Other functions of NumPy raise an ArgumentError."""
        function = _FUNCTION_OF_UFUNC.get(ufunc.__name__)
        if how == "__call__" and function is not None and not keywords and len(inputs) == 2:
            return FUNCTIONS[function](*inputs)
        raise self._refusal(f"np.{ufunc.__name__}")


class Spatial:
    """Indexes the dimensions of a tensor: ints, expressions, slices, `...`, None (a new dimension), int32 tensors."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __getitem__(self, key: SpatialKey) -> Tensor:
        """The elements at `key`: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`, `x.spatial[positions]`."""
        return FUNCTIONS["spatially_indexed"](self.tensor, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise errors.IndexingError(
            f"cannot assign to elements of {self.tensor!r}: a tensor never changes",
            hint="make a new tensor: tp.where(mask, x, y), x.scatter(positions, updates) or x.index_add(positions, updates)",
        )

    def __iter__(self) -> Any:
        raise errors.SymbolicValueError(
            f"cannot iterate over the dimensions of {self.tensor!r}", hint="loop over positions: [x.spatial[k] for k in range(3)]"
        )


def apply(op: ops.Op, *operands: BaseTensor, domain: Domain | None = None, name: str = "", where: str | None = None) -> Tensor:
    """The first output of a new node that applies `op` to the operands; its domain is the union of theirs."""
    context = operands[0].context if operands else BaseContext.current()
    for operand in operands:
        if operand.context is not context:
            raise errors.ContextError(
                f"one operation cannot combine tensors of two contexts: {operands[0]!r} and {operand!r}",
                hint="build both in one context. Or run the first program, and feed its result to the second: inputs={'x': result}",
            )
    if domain is None:
        steps: frozenset[Symbol] = frozenset(s for s in op.symbols if s.is_step)
        if not isinstance(op, ops.Input):  # a fed array is as large as the bound may be
            steps = steps | context.around(op.symbols)
        condition: Bool = TRUE
        for operand in operands:
            steps = steps | frozenset(operand.domain.steps)
            condition = condition & operand.domain.condition
        domain = Domain(step_order(steps, context.steps), condition)
    node = context.graph.add(op, [o.edge for o in operands], domain=domain, name=name, where=where or errors.user_location())
    return of_node(context, node)


def of_node(context: BaseContext, node: Node, output: int = 0) -> Tensor:
    """Output `output` of a node, at the node's own points."""
    return view(context, Edge(node.id, identity(node.domain), output))


def view(context: BaseContext, edge: Edge, condition: Bool = TRUE) -> Tensor:
    """The tensor that reads `edge`, where `condition` holds."""
    return Tensor(context, edge, condition)


class UserExpr(Expression["Tensor"]):
    """An expression that a user holds. A dict does not distinguish it from its plain expression."""


of_user = UserExpr._of_user


def user_minimum(*values: IntoExpr) -> UserExpr:
    """The least of some expressions, for the user."""
    return UserExpr(minimum(*values))


def user_maximum(*values: IntoExpr) -> UserExpr:
    """The greatest of some expressions, for the user."""
    return UserExpr(maximum(*values))


class Sizes(tuple[UserExpr, ...]):
    """The sizes of a tensor, for the user. Shapes are compared by the structure of their sizes: `x.shape == (t + 1, 3)`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(map(_plain, self)) == tuple(map(_plain, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()

    def __contains__(self, size: object) -> bool:
        return _plain(size) in tuple(map(_plain, self))


def _plain(value: object) -> object:
    return value.plain if isinstance(value, Expr) else value


# -- types of arguments -----------------------------------------------------------------------------------------------

Value: TypeAlias = Union[Tensor, Expr, Bool, ArrayLike]
"""A tensor, or a value that becomes one: a number, an array, an expression of steps and bounds, a condition on steps."""

Positions: TypeAlias = Union[Tensor, Expr, int, np.integer[Any], Array, SupportsArray, Sequence[int]]
"""Positions along a dimension: an int, an expression of steps, or integers in an array, a list or a tensor."""

SpatialIndex: TypeAlias = Union[IntoExpr, Slice, EllipsisType, Tensor, Array, Sequence[int], None]
SpatialKey: TypeAlias = Union[SpatialIndex, tuple[SpatialIndex, ...]]
"""An index of dimensions: positions, slices, `...`, None, int32 tensors."""

Bounds: TypeAlias = Mapping[UserExpr, Union[int, UpTo]]
"""A number for each bound: `{T: 100}`; or a capacity, for a bound that each run chooses: `{T: tp.upto(4096)}`."""

RunBounds: TypeAlias = Mapping[UserExpr, int]
"""A number for each bound that a run chooses: `{T: 137}`."""

name_annotation("Value", Value)


def _as_key(index: Index) -> Expr | slice[Expr, Expr, int]:
    return index.expr if isinstance(index, Point) else slice(index.start, index.stop, index.stride)


_FUNCTION_OF_UFUNC = {
    "subtract": "sub", "multiply": "mul", "divide": "div", "true_divide": "div", "floor_divide": "floordiv", "remainder": "mod",
    **{name: name for name in ("add", "power", "matmul", "bitwise_and", "bitwise_or", "equal", "not_equal")},
    **{name: name for name in ("less", "less_equal", "greater", "greater_equal")},
}  # fmt: skip

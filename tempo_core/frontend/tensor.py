"""What users hold: recurrent tensors, and expressions of steps and bounds. The methods of tensors are in `frontend/methods/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any, TypeAlias, TypeVar, Union

import numpy as np

from tempo_core.errors import GradientError, IndexingError, SymbolicValueError
from tempo_core.frontend.aliases import Array, ArrayLike, Slice, SupportsArray
from tempo_core.frontend.arguments import checked, name_annotation, shown
from tempo_core.frontend.expressions import Expression
from tempo_core.frontend.methods.indexing import at_position
from tempo_core.frontend.methods.nodes import is_class_of_tensors
from tempo_core.frontend.methods.reads import Reads, as_key
from tempo_core.ir import ops
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, IntoExpr
from tempo_core.symbolic.limits import UpTo

F = TypeVar("F", bound=Callable[..., Any])
_backward: list[Callable[[Tensor], None]] = []  # one function, which differentiates


def differentiates(function: F) -> F:
    """Decorator of the function that computes `backward`: it is written with tensors."""
    _backward[:] = [function]
    return function


@is_class_of_tensors
class Tensor(Reads["Tensor"]):
    """A recurrent tensor: a value of type `dtype[shape]` at every point of its `domain`.

    Indexing with `[]` indexes the steps of the domain, in order: points (`t - 1`, `0`), slices (`t:T`), conditions
    (`i % 5 == 0`). A slice gives a leading spatial dimension. Spatial dimensions are indexed with `.index` and `.spatial`.
    Operands of operators broadcast; numbers take the tensor's dtype (`tp.promote`).
    """

    @property
    def shape(self) -> Sizes:
        """The sizes, as expressions. `x.shape == (3, T)` compares the expressions, as they are written."""
        return Sizes(map(UserExpr, self.type.shape))

    @property
    def spatial(self) -> Spatial:
        """Indexes the dimensions, as NumPy does: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`."""
        return Spatial(self)

    @property
    def grad(self) -> Tensor:
        """The gradient that `backward` computed. It has the tensor's shape, dtype and domain."""
        source = self.node
        key = (self.edge.source, self.edge.output)
        if key not in self.context.gradients:
            raise GradientError(
                f"{self!r} has no gradient",
                hint="call loss.backward() first: it gives gradients to inputs with requires_grad=True, and to recurrences without an "
                "update so far. For any other tensor: tp.grad(loss, [x])",
            )
        gradient = view(self.context, self.context.gradients[key])
        steps = self.edge.by_step(source.domain)
        return gradient[tuple(as_key(steps[s]) for s in gradient.domain.steps)] if gradient.domain.steps else gradient

    @checked
    def backward(self) -> None:
        """Differentiate the sum of this tensor over its points and elements. The gradients are then in `.grad` of the leaves; calls add up.

        Leaves are inputs with `requires_grad` and recurrences whose update is not assigned yet (parameters).
        """
        _backward[0](self)


apply, of_node, view, evaluate, as_tensor = Tensor._apply, Tensor._of_node, Tensor._view, Tensor._evaluate, Tensor._as_tensor
aligned, promoted, factors, pad_axis = Tensor._aligned, Tensor._promoted, Tensor._factors, Tensor._pad_axis


class Spatial:
    """Indexes the dimensions of a tensor: ints, expressions, slices, `...`, None (a new dimension), int32 tensors."""

    def __init__(self, tensor: Tensor):
        self.tensor = tensor

    def __getitem__(self, key: SpatialKey) -> Tensor:
        """The elements at `key`: `x.spatial[0]`, `x.spatial[:, 1:t]`, `x.spatial[..., None]`, `x.spatial[positions]`."""
        x = self.tensor
        parts: list[Any] = list(key) if isinstance(key, tuple) else [key]
        count = sum(1 for p in parts if p is not None and p is not Ellipsis)
        if count > x.rank:
            raise IndexingError(
                f"{x!r} is indexed with {count} spatial indices, but it has {x.rank} dimension{'' if x.rank == 1 else 's'}",
                hint="spatial[] indexes dimensions only. To index a step: x[t - 1]",
            )
        dots = [k for k, p in enumerate(parts) if p is Ellipsis]
        if len(dots) > 1:
            raise IndexingError(
                "a spatial index has more than one `...`",
                hint="keep one, and write `:` for each other dimension: x.spatial[..., :, 0]",
            )
        if dots:
            parts[dots[0] : dots[0] + 1] = [slice(None)] * (x.rank - count)
        axis = 0
        for part in parts:
            if part is None:
                x = x.expand_dims(axis)
                axis += 1
            elif isinstance(part, slice):
                x = _sliced(x, axis, part)
                axis += 1
            else:
                rank = part.rank if isinstance(part, Tensor) else np.ndim(part) if isinstance(part, (list, np.ndarray)) else 0
                x = at_position(x, axis, part)
                axis += rank
        return x

    def __setitem__(self, key: Any, value: Any) -> None:
        raise IndexingError(
            f"cannot assign to elements of {self.tensor!r}: a tensor never changes",
            hint="make a new tensor: tp.where(mask, x, y), x.scatter(positions, updates) or x.index_add(positions, updates)",
        )

    def __iter__(self) -> Any:
        raise SymbolicValueError(
            f"cannot iterate over the dimensions of {self.tensor!r}", hint="loop over positions: [x.spatial[k] for k in range(3)]"
        )


def _sliced(x: Tensor, axis: int, part: slice) -> Tensor:
    size = x.type.shape[axis]
    stride = int(_end(part.step, Expr.of(1), Expr.of(0)))
    if stride == -1 and part.start is None and part.stop is None:
        return x.flip(axis)
    if stride < 1:
        raise IndexingError(f"the stride {stride} of a spatial slice is not positive", hint="to reverse an axis: x.flip(axis)")
    start, stop = _end(part.start, Expr.of(0), size), _end(part.stop, size, size)
    if start == 0 and stop == size and stride == 1:
        return x
    if size.is_constant and stop.is_constant and stop.constant > size.constant:
        stop = size
    if start.is_constant and stop.is_constant and start.constant > stop.constant:
        start = stop
    return apply(ops.Slice(axis, start, stop, stride), x)


def _end(value: Any, default: Expr, size: Expr) -> Expr:
    if value is None:
        return default
    try:
        end = Expr.of(value)
    except TypeError:
        raise IndexingError(
            f"{shown(value)} cannot be an end or the stride of a spatial slice",
            hint="use an int or an expression of steps: x.spatial[0:t + 1]. To pick elements by data: x.spatial[positions]",
        ) from None
    return size + end if end.is_constant and end.constant < 0 else end


class UserExpr(Expression["UserExpr", "Tensor"]):
    """An expression that a user holds. A dict does not distinguish it from its plain expression."""


of_user = UserExpr._of_user


class Sizes(tuple[UserExpr, ...]):
    """The sizes of a tensor, for the user. Shapes are compared by the structure of their sizes: `x.shape == (t + 1, 3)`."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple) and tuple(map(_plain, self)) == tuple(map(_plain, other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

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

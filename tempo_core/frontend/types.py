"""Names for what public functions take, and for what users get.

`tempo_core.typing` gives them to users, to annotate functions and modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

import numpy as np

from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, IntoExpr

if TYPE_CHECKING:
    from tempo_core.frontend.tensor import Tensor


class SupportsArray(Protocol):
    """An array of another library: JAX, PyTorch."""

    @property
    def dtype(self) -> object: ...
    def __array__(self) -> np.ndarray[Any, Any]: ...


# -- what users get ---------------------------------------------------------------------------------------------------

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""One result of a run: an array whose leading dimensions are the steps of the output's domain.

It is a `np.ma.MaskedArray`, which is a `np.ndarray`, where the output was indexed with a condition. An output whose *shape*
varies with a step, and no other, comes as nested lists of arrays, `Ragged`: no type can tell which outputs these are, as it
depends on symbolic sizes. Who asks for one writes `cast(Ragged, program.run(...)[0])`.
"""

Ragged: TypeAlias = list[Union[Array, "Ragged", None]]
"""A result whose shape varies with a step: a list with one array a point, nested once a step; None where there is none."""

# -- what functions take ----------------------------------------------------------------------------------------------

Number: TypeAlias = Union[bool, int, float, np.generic]
Row: TypeAlias = Sequence[Number]
Numbers: TypeAlias = Union[Number, Row, Sequence[Row], Sequence[Sequence[Row]], Sequence[Sequence[Sequence[Row]]]]
"""A number, or lists of numbers of one length each. (Written out, as a text is a list of texts, however deep one looks.)"""

ArrayLike: TypeAlias = Union[Numbers, Array, SupportsArray]
"""What is known when the program is built: numbers, lists of them, arrays of any library."""

Value: TypeAlias = Union["Tensor", Expr, Bool, ArrayLike]
"""What is, or becomes, a tensor: a tensor, a number, an array, an expression of steps and bounds, a condition on steps."""

Positions: TypeAlias = Union["Tensor", Expr, int, np.integer[Any], Array, SupportsArray, Sequence[int]]
"""Which elements of a dimension: an int, an expression of steps, or integers, as an array, a list or a tensor."""

Shape: TypeAlias = Union[IntoExpr, Sequence[IntoExpr]]
"""Sizes, which may be expressions of bounds and steps; one size stands for a shape of one dimension."""

Axes: TypeAlias = Union[int, Sequence[int], None]
"""An axis, several, or all."""

AxisPairs: TypeAlias = Union[int, Sequence[Union[int, Sequence[int]]]]
"""The axes that two operands share: how many, or the first's and the second's."""

Domain: TypeAlias = Iterable[Expr]
"""Steps, as the context gave them: `domain=(i, t)`."""

Condition: TypeAlias = Union[Bool, bool]
"""Where something holds, in terms of steps: `t % 5 == 0`."""

End: TypeAlias = Union[IntoExpr, None]
Slice: TypeAlias = "slice[End, End, End]"
Index: TypeAlias = Union[IntoExpr, Condition, "Slice"]
Key: TypeAlias = Union[Index, tuple[Index, ...]]
"""A temporal index: for each step a point or a slice; and conditions on steps."""

SpatialIndex: TypeAlias = Union[IntoExpr, "Slice", EllipsisType, "Tensor", Array, Sequence[int], None]
SpatialKey: TypeAlias = Union[SpatialIndex, tuple[SpatialIndex, ...]]
"""An index of dimensions: positions, slices, `...`, None, int32 tensors."""

Bounds: TypeAlias = Mapping[Expr, int]
"""A number for each bound: `{T: 100}`."""

Feed: TypeAlias = Union[ArrayLike, Iterable[ArrayLike], Callable[..., ArrayLike]]
"""What feeds an input: an array, an iterator of one array a point, or a function of the steps."""

Inputs: TypeAlias = Mapping[str, Feed]

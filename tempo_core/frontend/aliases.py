"""Aliases for the types of the arguments of public functions, and of the results that users get.

Users import them from `tempo_core.typing`, to annotate their own functions and modules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, Union

import numpy as np

from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, IntoExpr

__all__ = [  # what users have in `tempo_core.typing`
    "Array", "ArrayLike", "Axes", "AxisPairs", "Condition", "Domain", "Feed", "Index", "Inputs", "Key", "Number", "Numbers", "Ragged",
    "Shape", "SupportsArray", "Tree", "Widths",
]  # fmt: skip


class SupportsArray(Protocol):
    """An array of another library: JAX, PyTorch."""

    @property
    def dtype(self) -> object: ...
    def __array__(self) -> np.ndarray[Any, Any]: ...


# -- results ----------------------------------------------------------------------------------------------------------

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""One result of a run: an array whose leading dimensions are the steps of the output's domain.

It is a `np.ma.MaskedArray`, which is a `np.ndarray`, if the output was indexed with a condition. Only an output whose *shape*
varies with a step comes as nested lists of arrays instead, `Ragged`. A type cannot tell which outputs are ragged, because that
depends on symbolic sizes. For such an output write `cast(Ragged, program.run(...)[0])`.
"""

Ragged: TypeAlias = list[Union[Array, "Ragged", None]]
"""A result whose shape varies with a step: a list with one array for each point, nested once for each step. None: no value."""

# -- arguments --------------------------------------------------------------------------------------------------------

Number: TypeAlias = Union[bool, int, float, np.generic]
Row: TypeAlias = Sequence[Number]
Numbers: TypeAlias = Union[Number, Row, Sequence[Row], Sequence[Sequence[Row]], Sequence[Sequence[Sequence[Row]]]]
"""A number, or nested lists of numbers, of one length at each level.

The levels are written out: a recursive alias would accept texts, since a text is a sequence of texts.
"""

ArrayLike: TypeAlias = Union[Numbers, Array, SupportsArray]
"""A value that exists when the program is built: a number, a list of numbers, or an array of any library."""

Tree: TypeAlias = object
"""A tensor or a value that becomes one, or a pytree of them: a dict, a tuple, the parameters of a Flax or Equinox module."""

Shape: TypeAlias = Union[IntoExpr, Sequence[IntoExpr]]
"""Sizes, which may be expressions of bounds and steps; one size stands for a shape of one dimension."""

Widths: TypeAlias = Union[IntoExpr, Sequence[Union[IntoExpr, Sequence[IntoExpr]]]]
"""How many elements are added at the ends of axes: a number, a pair (before, after), or a pair for each axis."""

Axes: TypeAlias = Union[int, Sequence[int], None]
"""An axis, several, or all."""

AxisPairs: TypeAlias = Union[int, Sequence[Union[int, Sequence[int]]]]
"""The axes that two operands share: their number, or a pair (axes of the first, axes of the second)."""

Domain: TypeAlias = Iterable[Expr]
"""The context's steps: `domain=(i, t)`."""

Condition: TypeAlias = Union[Bool, bool]
"""A condition on steps: `t % 5 == 0`."""

End: TypeAlias = Union[IntoExpr, None]
Slice: TypeAlias = "slice[End, End, End]"
Index: TypeAlias = Union[IntoExpr, Condition, "Slice"]
Key: TypeAlias = Union[Index, tuple[Index, ...]]
"""A temporal index: a point or a slice for each step, and conditions on steps."""

Feed: TypeAlias = Union[ArrayLike, Iterable[ArrayLike], Callable[..., ArrayLike]]
"""A value for an input: an array, an iterator with one array for each point, or a function of the steps."""

Inputs: TypeAlias = Mapping[str, Feed]

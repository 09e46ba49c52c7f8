"""Types for annotations: the results of a run and the arguments of functions. `def loss(x: tp.Tensor, target: typing.Value) -> ...`."""

from tempo_core.frontend.aliases import (
    Array,
    ArrayLike,
    Axes,
    AxisPairs,
    Bounds,
    Condition,
    Domain,
    Feed,
    Index,
    Inputs,
    Key,
    Number,
    Numbers,
    Positions,
    Ragged,
    Shape,
    SpatialIndex,
    SpatialKey,
    SupportsArray,
    Tree,
    Value,
    Widths,
)
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import Expr, IntoExpr

__all__ = [
    "Array", "ArrayLike", "Axes", "AxisPairs", "Bool", "Bounds", "Condition", "Domain", "Expr", "Feed", "Index", "Inputs", "IntoExpr", "Key",
    "Number", "Numbers", "Positions", "Ragged", "Shape", "SpatialIndex", "SpatialKey", "SupportsArray", "Tree", "Value", "Widths",
]  # fmt: skip

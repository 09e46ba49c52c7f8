"""Types for annotations: the results of a run and the arguments of functions. `def loss(x: tp.Tensor, target: typing.Value) -> ...`."""
# ruff: noqa: F403, F405

from tempo_core.frontend.aliases import *
from tempo_core.frontend.tensor import Bounds, Positions, SpatialIndex, SpatialKey, Value
from tempo_core.frontend.tensor import UserExpr as Expr
from tempo_core.symbolic.condition import Bool
from tempo_core.symbolic.expr import IntoExpr

__all__ = [
    "Array", "ArrayLike", "Axes", "AxisPairs", "Bool", "Bounds", "Condition", "Domain", "Expr", "Feed", "Index", "Inputs", "IntoExpr", "Key",
    "Number", "Numbers", "Positions", "Ragged", "Shape", "SpatialIndex", "SpatialKey", "SupportsArray", "Tree", "Value", "Widths",
]  # fmt: skip

"""User-defined functions as values: what the passes make of them stays hashable and comparable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vmapped:
    """`fn` over a new leading dimension: of operand k where `in_axes[k]` is 0, shared by all where it is None.

    Equal where function and axes are, so that common subexpressions stay common. Nests for several dimensions. At least one
    operand must carry the dimension; results carry it first.
    """

    fn: Callable[..., Any]
    in_axes: tuple[int | None, ...]

    def __call__(self, *operands: Any) -> Any:
        import jax  # the IR itself needs no JAX

        return jax.vmap(self.fn, in_axes=self.in_axes)(*operands)

    @property
    def __name__(self) -> str:
        return f"vmap({getattr(self.fn, '__name__', type(self.fn).__name__)})"

"""User-defined functions as values: what the passes make of them stays hashable and comparable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fed:
    """What a run is fed with under `name`, one value a point, in the order of the points: the function of a streamed input.

    It is no function before a run: the runtime asks the run's inputs in its place.
    """

    name: str

    def __call__(self, *operands: Any) -> Any:
        raise AssertionError(f"the runtime feeds the streamed input `{self.name}`")

    @property
    def __name__(self) -> str:
        return f"fed({self.name})"


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


@dataclass(frozen=True)
class Trimmed:
    """`fn` of padded arrays in their true shapes: of operand k, `axes[k]` are cut to lengths, given as operands after the arrays."""

    fn: Callable[..., Any]
    axes: tuple[tuple[int, ...], ...]

    def __call__(self, *operands: Any, **point: int) -> Any:
        lengths = iter(operands[len(self.axes) :])
        arrays = []
        for array, axes in zip(operands, self.axes, strict=False):
            cut = {axis: slice(int(next(lengths))) for axis in axes}
            arrays.append(array[tuple(cut.get(k, slice(None)) for k in range(array.ndim))])
        return self.fn(*arrays, **point)

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", type(self.fn).__name__)


@dataclass(frozen=True)
class Pullback:
    """The vector-Jacobian product of a function of arrays, by JAX: takes the operands, then the gradients of the `results`.

    `operands` and `results` are the positions that gradients flow through; one gradient an entry of `operands` comes back.
    """

    fn: Callable[..., Any]
    count: int  # of the function's operands
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def __call__(self, *arguments: Any) -> Any:
        import jax

        given, gradients = arguments[: self.count], arguments[self.count :]

        def of_floats(*chosen: Any) -> tuple[Any, ...]:
            everything = list(given)
            for position, value in zip(self.operands, chosen, strict=True):
                everything[position] = value
            found = self.fn(*everything)
            return tuple(found[k] for k in self.results)

        _, pull = jax.vjp(of_floats, *(given[k] for k in self.operands))
        return pull(tuple(gradients))

    @property
    def __name__(self) -> str:
        return f"pullback({getattr(self.fn, '__name__', type(self.fn).__name__)})"

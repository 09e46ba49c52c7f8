"""User-defined functions as values: the functions that passes derive from them stay hashable and comparable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fed:
    """The function of a streamed input: the values under `name` in a run's inputs, one per point, in the order of the points.

    It cannot be called: the runtime takes the values from the run's inputs.
    """

    name: str

    def __call__(self, *operands: Any) -> Any:
        raise AssertionError(f"the runtime feeds the streamed input `{self.name}`")

    @property
    def __name__(self) -> str:
        return f"fed({self.name})"


@dataclass(frozen=True)
class Vmapped:
    """`fn` over a new leading dimension. Operand k has it if `in_axes[k]` is 0; if that is None, all elements share operand k.

    Two are equal if their functions and axes are equal, so that common subexpressions stay common. They nest, for several
    dimensions. At least one operand must have the dimension; results have it first.
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
    """`fn` of padded arrays, cut to their true shapes: the axes `axes[k]` of operand k are cut to given lengths.

    The lengths are operands too, after the arrays.
    """

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
    """The vector-Jacobian product of a function of arrays, by JAX. It takes the operands, then the gradients of the `results`.

    `operands` and `results` are the positions that gradients flow through. It returns one gradient for each entry of `operands`.
    """

    fn: Callable[..., Any]
    count: int  # of the function's operands
    operands: tuple[int, ...]
    results: tuple[int, ...]

    def __call__(self, *arguments: Any) -> Any:
        import jax

        inputs, gradients = arguments[: self.count], arguments[self.count :]

        def of_floats(*floats: Any) -> tuple[Any, ...]:
            everything = list(inputs)
            for position, value in zip(self.operands, floats, strict=True):
                everything[position] = value
            outputs = self.fn(*everything)
            return tuple(outputs[k] for k in self.results)

        _, pull = jax.vjp(of_floats, *(inputs[k] for k in self.operands))
        return pull(tuple(gradients))

    @property
    def __name__(self) -> str:
        return f"pullback({getattr(self.fn, '__name__', type(self.fn).__name__)})"

"""Bounds that each call of a program's JAX function chooses: known numbers, or traced ones.

A number that is known while JAX traces gives arrays of true shapes. A traced number, and the end of a step that the run finds out, are values:
arrays have the shape of the most that there may be, and are zero past the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tempo_core.errors import BoundsError
from tempo_core.ir.types import TensorType
from tempo_core.runtime.feeds import InputSpec
from tempo_core.runtime.lower.placement import maximum, minimum
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.expr import Bounds, Expr, StepValues, Symbol

CallBounds = Mapping[Expr, "int | jax.Array"]


@dataclass(frozen=True)
class Extent:
    """What one result is over and how large it is, in bounds; and the condition under which it exists at a point."""

    steps: tuple[Symbol, ...]
    type: TensorType
    condition: Bool = TRUE

    def shape(self, bounds: StepValues) -> tuple[Any, ...]:
        sizes = (size.evaluate(bounds, minimum, maximum) for size in self.type.shape)
        return (*(bounds[step.bound_symbol] for step in self.steps), *sizes)


@dataclass(frozen=True)
class Chosen:
    """The bounds of one call: `most` are numbers, at which shapes are taken, `true` perhaps traced; `counters` tell the program."""

    most: Bounds
    true: StepValues
    counters: tuple[Any, ...]


@dataclass(frozen=True)
class CallLengths:
    """How calls choose bounds. `specs` gives the inputs for some bounds, `domains` the steps of each input.

    `lengths` has, by bound, the position of the result that gives the end of a step.
    """

    run_bounds: RunBounds
    specs: Callable[[Bounds], Mapping[str, InputSpec]]
    domains: Mapping[str, tuple[Symbol, ...]]
    results: tuple[Extent, ...]
    lengths: Mapping[Symbol, int]

    def of_call(self, bounds: CallBounds | None, inputs: Mapping[str, Any]) -> Chosen:
        """The bounds that a call gives, or that the shapes of its inputs tell. Raises BoundsError.

        A traced number cannot be checked: one outside of the limits counts as the nearest limit.
        """
        limits = self.run_bounds.limits
        traced: dict[Symbol, Any] = {}
        given: dict[Any, Any] = {}
        for key, number in bounds.items() if isinstance(bounds, Mapping) else ():
            symbol = Symbol(str(key))
            given[key] = number
            if isinstance(number, jax.core.Tracer) and symbol in limits:
                if number.shape or not jnp.issubdtype(number.dtype, jnp.integer):
                    raise BoundsError(f"the bound {symbol} is {number.dtype}{list(number.shape)}; it is one integer")
                limit = limits[symbol]
                traced[symbol] = jnp.clip(number, limit.at_least, limit.capacity).astype(jnp.int32)
                given[key] = limit.capacity
        most = self.run_bounds.of_run(given if isinstance(bounds, Mapping) else bounds, inputs, self.domains)
        true: StepValues = {**most, **traced}
        return Chosen(most, true, tuple(jnp.asarray(true[bound] - 1, jnp.int32) for bound in limits))

    def chosen_size(self, name: str) -> Symbol | None:
        """A bound in the shape of an input that each call chooses; None if there is none."""
        type = self.run_bounds.source.fed()[name].outputs[0]
        symbols = frozenset().union(*(size.symbols for size in type.shape))
        return next((bound for bound in self.run_bounds.limits if bound in symbols), None)

    def fitted(self, name: str, array: Any) -> Any:
        """An input as the device program takes it: as large as the capacity, with zeros at its end."""
        shape = self.run_bounds.shape_of(name)
        array = jnp.asarray(array)
        return (
            array
            if shape is None or shape == array.shape
            else jnp.pad(array, [(0, size - given) for size, given in zip(shape, array.shape, strict=True)])
        )

    def at_capacity(self, position: int, value: Any, capacity: Bounds) -> Any:
        """A result of the device program without the padding that the compiler added."""
        return value[tuple(slice(0, size) for size in self.results[position].shape(capacity))]

    def formed(self, values: Mapping[int, Any], chosen: Chosen) -> dict[int, Any]:
        """The results of a call, from those of the device program."""
        ends = {bound: values[position] for bound, position in self.lengths.items()}
        true = {**chosen.true, **ends}
        return {k: _formed(extent, values[k], chosen.most, true) for k, extent in enumerate(self.results)}


def _formed(extent: Extent, value: Any, most: Bounds, true: StepValues) -> Any:
    sizes = extent.shape(most)
    array = value[tuple(slice(0, size) for size in sizes)]
    exists: Any = True
    places = [jax.lax.broadcasted_iota(jnp.int32, sizes, axis) for axis in range(len(sizes))]
    for place, size, true_size in zip(places, sizes, extent.shape(true), strict=True):
        if not isinstance(true_size, int) or true_size != size:
            exists = exists & (place < true_size)
    if extent.condition is not TRUE:
        exists = exists & extent.condition.evaluate({**true, **dict(zip(extent.steps, places, strict=False))}, minimum, maximum)
    return array if exists is True else jnp.where(exists, array, jnp.zeros((), array.dtype))

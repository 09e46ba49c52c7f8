"""Bounds that each call of a program's JAX function chooses: known numbers, or traced ones.

A number that is known while JAX traces gives arrays of true shapes. A traced number, and the end of a step that the run finds out, are values:
arrays have the shape of the most that there may be, and are zero past the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from tempo_core.errors import BoundsError, ConfigError
from tempo_core.runtime.results import Results
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.runtime.run_inputs import RunInputs
from tempo_core.symbolic.expr import Bounds, Expr, StepValues, Symbol

CallBounds = Mapping[Expr, "int | jax.Array"]


@dataclass(frozen=True)
class Chosen:
    """The bounds of one call: `most` are numbers, at which shapes are taken, `true` perhaps traced; `counters` tell the program."""

    most: Bounds
    true: StepValues
    counters: tuple[Any, ...]
    traced: frozenset[Symbol]

    def formed(self, results: Results, values: Mapping[int, Any]) -> dict[int, Any]:
        """The results of a call, from those of the device program."""
        true = {**self.true, **{bound: values[position] for bound, position in results.lengths.items()}}
        return {k: result.traced(values[k], self.most, true) for k, result in enumerate(results.each)}


def check_static(results: Results, bounds: RunBounds) -> None:
    """Raise ConfigError for results without a static shape, if each call chooses bounds."""
    for name, result in results.by_name.items() if bounds.limits else ():
        if not result.type.is_static:
            bound, limit = next(iter(bounds.limits.items()))
            raise ConfigError(
                f"the output `{name}` has a shape that varies with a step, but each call of a JAX function chooses {bound}",
                hint=f"compile it for one bound: ctx.compile({{{bound}: {limit.capacity}}}, ...)",
            )


def of_call(inputs: RunInputs, bounds: CallBounds | None, arrays: Mapping[str, Any]) -> Chosen:
    """The bounds that a call gives, or that the shapes of its inputs tell. Raises BoundsError.

    A traced number cannot be checked: one outside of the limits counts as the nearest limit.
    """
    limits = inputs.bounds.limits
    if bounds and not limits:
        raise BoundsError(
            "the program has no bound that a call chooses", hint="compile it for several: ctx.compile({T: tp.upto(64)}, ...)"
        )
    traced: dict[Symbol, Any] = {}
    given: Any = dict(bounds) if isinstance(bounds, Mapping) else bounds
    for key, number in bounds.items() if isinstance(bounds, Mapping) else ():
        symbol = Symbol(str(key))
        if isinstance(number, jax.core.Tracer) and symbol in limits:
            if number.shape or not jnp.issubdtype(number.dtype, jnp.integer):
                raise BoundsError(f"the bound {symbol} is {number.dtype}{list(number.shape)}; it is one integer")
            limit = limits[symbol]
            traced[symbol] = jnp.clip(number, limit.at_least, limit.capacity).astype(jnp.int32)
            given[key] = limit.capacity
    most = inputs.numbers(arrays, given)
    true: StepValues = {**most, **traced}
    return Chosen(most, true, tuple(jnp.asarray(true[bound] - 1, jnp.int32) for bound in limits), frozenset(traced))


def fitted(bounds: RunBounds, name: str, array: Any) -> Any:
    """An input as the device program takes it: as large as the capacity, with zeros at its end."""
    shape, array = bounds.shape_of(name), jnp.asarray(array)
    if shape is None or shape == array.shape:
        return array
    return jnp.pad(array, [(0, size - length) for size, length in zip(shape, array.shape, strict=True)])

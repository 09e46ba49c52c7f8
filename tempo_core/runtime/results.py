"""The results of a run in the form of the program's outputs: arrays without padding, masked where an output does not exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tempo_core.backends.base import numpy_dtype
from tempo_core.errors import ArgumentError
from tempo_core.ir.types import TensorType
from tempo_core.runtime.lower.placement import maximum, minimum
from tempo_core.symbolic.condition import TRUE, Bool
from tempo_core.symbolic.expr import Bounds, StepValues, Symbol

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    """The form of one output: the steps of its domain lead, then its shape follows, which may vary from point to point.

    A `condition` other than TRUE comes from the user's index of the output. Where it does not hold, the result is masked.
    """

    steps: tuple[Symbol, ...]
    type: TensorType
    name: str = ""
    condition: Bool = TRUE

    def shape(self, bounds: StepValues) -> tuple[Any, ...] | None:
        """The shape of the result, also at traced bounds; None if it varies with a step."""
        if not self.type.is_static:
            return None
        sizes = (size.evaluate(bounds, minimum, maximum) for size in self.type.shape)
        return (*(bounds[step.bound_symbol] for step in self.steps), *sizes)

    def former(self, bounds: Bounds) -> Callable[[Any], Any]:
        """A function that gives the result of a run: an array, or nested lists if the shape varies with a step.

        Missing points are masked, or None in lists.
        """
        sizes = self.shape(bounds)
        if sizes is None:
            return lambda value: self._nested(_on_host(value), bounds, lambda part: _writable(np.asarray(part)))
        exists = np.broadcast_to(self._exists(sizes, bounds, np), sizes)

        def formed(value: Any) -> Any:
            array = trimmed(np.asarray(value), sizes)
            if self.condition is TRUE:
                return _writable(array)
            return np.ma.MaskedArray(np.where(exists, array, np.zeros((), array.dtype)), ~exists)

        return formed

    def traced(self, value: Any, most: Bounds, true: StepValues) -> Any:
        """The same for an array of JAX, perhaps a traced one: of the size for the bounds `most`, with zeros at missing points.

        The points for the bounds `true` exist, which may be traced. Nested lists have None at missing points.
        """
        sizes = self.shape(most)
        if sizes is None:
            return self._nested(value, most, lambda part: part)
        array, exists = trimmed(value, sizes), self._exists(sizes, true, jnp)
        return array if exists is True else jnp.where(exists, array, jnp.zeros((), array.dtype))

    def _exists(self, sizes: tuple[int, ...], bounds: StepValues, library: Any) -> Any:
        """Where an array of these sizes has elements of the result: True, or an array of NumPy or JAX."""
        exists: Any = True
        places = library.indices(sizes, dtype=np.int32, sparse=True)
        for place, size, true_size in zip(places, sizes, self.shape(bounds) or (), strict=True):
            if not isinstance(true_size, int) or true_size != size:
                exists = exists & (place < true_size)
        if self.condition is TRUE:
            return exists
        at = {**bounds, **dict(zip(self.steps, places, strict=False))}
        return exists & self.condition.evaluate(at, library.minimum, library.maximum)

    def _nested(self, value: Any, bounds: Bounds, finished: Callable[[Any], Any]) -> Any:

        def rows(part: Any, steps: tuple[Symbol, ...], at: Bounds) -> Any:
            if steps:
                return [rows(part[k], steps[1:], {**at, steps[0]: k}) for k in range(bounds[steps[0].bound_symbol])]
            if not self.condition.evaluate(at):
                return None
            return finished(part[tuple(slice(0, size.evaluate(at)) for size in self.type.shape)])

        return rows(value, self.steps, bounds)

    def __str__(self) -> str:
        over = f" over ({', '.join(s.name for s in self.steps)})" if self.steps else ""
        return f"{self.type}{over}" + ("" if self.condition is TRUE else f" where {self.condition}")


def trimmed(array: Any, sizes: tuple[Any, ...] | None) -> Any:
    """An array without its padding, which it has if it is one point of a tensor whose shape varies."""
    return array if sizes is None or array.shape == sizes else array[tuple(slice(0, n) for n in sizes)]


def _on_host(value: Any) -> Any:
    """A device array as one of NumPy, so that JAX does not compile a program for each shape that is cut from it; else the value itself."""
    return np.array(value) if isinstance(value, jax.Array) else value


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A result that the caller may write into: it shares no memory with inputs or other results. JAX's arrays stay read-only."""
    return array.copy() if array.flags.writeable else array


@dataclass(frozen=True)
class Results:
    """All outputs, in the form of `outputs`: a dict with `names`, one tensor (`is_single`), or a sequence."""

    each: tuple[Result, ...]
    names: tuple[str, ...] | None = None
    is_single: bool = False
    lengths: Mapping[Symbol, int] = field(default_factory=dict)  # the positions of the bounds that the run finds out

    def former(self, bounds: Bounds) -> Callable[[Mapping[int, Any], Mapping[int, Array]], Any]:
        """A function that gives the results of a run, from the values by position, and arrays that some are written into."""
        formers = [result.former(bounds) for result in self.each]

        def formed(values: Mapping[int, Any], out: Mapping[int, Array]) -> Any:
            for position, array in out.items():
                value = values[position]
                if not (isinstance(value, np.ndarray) and np.may_share_memory(value, array)):  # else it is there already
                    array[...] = formers[position](value)
            return self.together({k: out[k] if k in out else of(values[k]) for k, of in enumerate(formers)})

        return formed

    def arrays_for(self, out: Mapping[str, Any], bounds: Bounds) -> dict[int, Array]:
        """The arrays for some results, by position. Raises ArgumentError for one that does not fit."""
        arrays: dict[int, Array] = {}
        if not out:
            return arrays
        positions = {name: position for position, name in enumerate(self.by_name)}
        for name, array in out.items():
            if name not in positions:
                raise ArgumentError(f"out names {name!r}, which is not a result", hint=f"the results are {', '.join(positions)}")
            result = self.each[positions[name]]
            shape, dtype = result.shape(bounds), numpy_dtype(result.type.dtype)
            if shape is None or result.condition is not TRUE:
                raise ArgumentError(
                    f"the result {name!r} has points that do not exist, or shapes that vary, and goes into no array",
                    hint=f"leave it out of out; its type is {result}",
                )
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype or not array.flags.writeable:
                raise ArgumentError(
                    f"out[{name!r}] must be a NumPy array of shape {shape} and dtype {dtype} that can be written into",
                    hint=f'np.lib.format.open_memmap("{name}.npy", "w+", np.{dtype}, {shape}), for a file',
                )
            arrays[positions[name]] = array
        return arrays

    def together(self, values: Mapping[int, Any]) -> Any:
        """Values by position in the form of the outputs."""
        if self.is_single:
            return values[0]
        arrays = [values[k] for k in range(len(self.each))]
        return arrays if self.names is None else dict(zip(self.names, arrays, strict=True))

    @property
    def by_name(self) -> dict[str, Result]:
        """The results by the names of `outputs`, else by the names of the tensors, else by position."""
        names = self.names
        if names is None:
            tensor_names = [result.name for result in self.each]
            names = tuple(n if n and tensor_names.count(n) == 1 else str(k) for k, n in enumerate(tensor_names))
        return dict(zip(names, self.each, strict=True))

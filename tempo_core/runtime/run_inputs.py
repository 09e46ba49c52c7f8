"""What is fed to the runs of a program: its inputs by name, those that are bound, and the bounds that a run chooses."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from tempo_core.backends import aligned
from tempo_core.errors import InputError
from tempo_core.runtime.feeds import Feeds, InputSpec, check_names, checked_inputs, input_specs, kind_of
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.symbolic.expr import Bounds, Symbol

Arrays = Mapping[str, Any]


class RunInputs:
    """The inputs of a program. `domains` has the steps of each; inputs that no output needs may be fed, and are ignored."""

    def __init__(self, bounds: RunBounds, domains: Mapping[str, tuple[Symbol, ...]]):
        self.bounds, self.domains = bounds, domains
        self.arrays: Arrays = {}  # bound inputs
        self.prepared: Arrays = {}  # the same, as device programs take them
        self._specs_at = functools.lru_cache(16)(lambda numbers: input_specs(bounds.source, domains, dict(numbers)))

    @functools.cached_property
    def specs(self) -> dict[str, InputSpec]:
        return input_specs(self.bounds.source, self.domains, self.bounds.compiled)

    def specs_of(self, numbers: Bounds) -> dict[str, InputSpec]:
        """The inputs of a run with these bounds."""
        return self.specs if numbers is self.bounds.compiled else self._specs_at(tuple(numbers.items()))

    @property
    def needed(self) -> dict[str, InputSpec]:
        """The inputs that a run needs: those that are not bound."""
        return {name: spec for name, spec in self.specs.items() if name not in self.arrays}

    def numbers(self, inputs: Arrays | None, bounds: Mapping[Any, int] | None) -> Bounds:
        """The bounds of a run."""
        arrays = inputs if isinstance(inputs, Mapping) else {}  # `fed` refuses others
        return self.bounds.of_run(bounds, {**self.arrays, **arrays}, self.domains)

    def fed(self, inputs: Arrays | None, numbers: Bounds, as_written: bool = False) -> Feeds:
        """The inputs of a run with these bounds, of the compiled program or of the program `as_written`. Raises InputError."""
        given: Arrays = {} if inputs is None else inputs
        fed = checked_inputs(self._without_bound(self.specs_of(numbers), given), self.domains, given)
        if self.arrays:
            fed = Feeds({**fed.arrays, **self.arrays}, fed.streams, self.prepared)
        if not self.bounds.limits or as_written:
            return fed
        return Feeds(fed.arrays, fed.streams, fed.bound, self.bounds.chosen(numbers), self.bounds.fitted)

    def bind(self, inputs: Arrays, prepare: Callable[[str, Any], Any] | None) -> RunInputs:
        """The inputs with more of them bound. `prepare(name, array)` gives an array as device programs take it."""
        check_names(self.specs, self.domains, inputs)
        specs = {name: spec for name, spec in self.specs.items() if name in inputs}
        for name, spec in specs.items():
            bound = self.bounds.chosen_size(name)
            if bound is not None:
                raise spec.error(f"cannot be bound: each run chooses its size {bound}", "give it to each run: program.run({...})")
        given = checked_inputs(self._without_bound(specs, inputs), self.domains, inputs)
        for feed in given.streams.values():
            raise feed.spec.error("is streamed, and cannot be bound", "give the stream to each run: program.run({...})")
        arrays, other = {name: kept(array) for name, array in given.arrays.items()}, copy.copy(self)
        other.arrays = {**self.arrays, **arrays}
        if prepare is not None:
            other.prepared = {**self.prepared, **{name: prepare(name, array) for name, array in arrays.items()}}
        return other

    def bound_as(self, other: RunInputs) -> RunInputs:
        """The inputs with those bound that another program has bound, of which device programs take the same parts."""
        inputs = copy.copy(self)
        inputs.arrays, inputs.prepared = other.arrays, other.prepared
        return inputs

    def _without_bound(self, specs: Mapping[str, InputSpec], inputs: Arrays) -> dict[str, InputSpec]:
        """Those of some inputs that are not bound. Raises InputError if one of `inputs` is."""
        for name in inputs if self.arrays else ():
            if name in self.arrays:
                raise specs[name].error(
                    "is bound already", "leave it out, or use the program that program.bind(...) was called on"
                )
        return {name: spec for name, spec in specs.items() if name not in self.arrays} if self.arrays else dict(specs)

    def donated(self, inputs: Arrays | None, names: Iterable[str], check_numerics: bool) -> dict[str, jax.Array]:
        """The arrays that a run may have for itself. Raises InputError."""
        arrays: dict[str, jax.Array] = {}
        for name in names:
            spec, value = self.specs.get(name), (inputs or {}).get(name)
            if spec is None or name in self.arrays or check_numerics:
                why = "is bound" if name in self.arrays else "is read again by check_numerics"
                problem = (
                    f"the input `{name}` {why}, and cannot be donated" if spec else f"the program has no input `{name}` to donate"
                )
                raise InputError(problem, hint=f"its inputs are {', '.join(self.needed) or 'none'}")
            if not isinstance(value, jax.Array) or isinstance(value, jax.core.Tracer):
                raise spec.error(
                    f"is {kind_of(value)}, but only an array on the device can be donated",
                    f"leave it out of donate, or put it on the device: jax.device_put({name})",
                )
            arrays[name] = value
        return arrays


def kept(array: Any) -> Any:
    """An array that nobody else writes into: a copy, unless it is read-only or on a device."""
    if not isinstance(array, np.ndarray) or not array.flags.writeable:
        return array
    held = aligned.copied(array, array.dtype)
    held.flags.writeable = False
    return held

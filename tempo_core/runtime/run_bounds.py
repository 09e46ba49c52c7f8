"""The bounds of one run: those that the program was compiled for, and those that the run chooses up to a capacity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tempo_core.backends import aligned
from tempo_core.errors import BoundsError
from tempo_core.ir.graph import Graph
from tempo_core.ir.ops import Input
from tempo_core.schedule.build import chosen_value
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.limits import UpTo


class RunBounds:
    """The bounds of a program. `limits` are those that a run chooses, in the order of the steps `graph.chosen`."""

    def __init__(
        self, source: Graph, graph: Graph, compiled: Bounds, limits: Mapping[Symbol, UpTo], check: Callable[[Bounds], None]
    ):
        """`check(bounds)` raises an error of the user's program for these bounds."""
        self.source, self.compiled, self.limits, self._check = source, compiled, dict(limits), check
        self.values = {bound: chosen_value(step) for bound, step in zip(limits, graph.chosen, strict=True)}
        shapes = {name: node.outputs[0].shape for name, node in graph.fed().items() if isinstance(node.op, Input)}
        self._scheduled = {**compiled, **{s.bound_symbol: limits[b].capacity for b, s in zip(limits, graph.chosen, strict=True)}}
        self._scheduled = graph.all_bounds({b: n for b, n in self._scheduled.items() if b not in graph.derived})
        self._shapes = {name: tuple(size.evaluate(self._scheduled) for size in shape) for name, shape in shapes.items()}
        self.ends, self._fed = source.ends(), source.fed()
        self._checked: set[tuple[int, ...]] = set()

    def of_run(
        self, given: Mapping[Any, int] | None, inputs: Mapping[str, Any], steps: Mapping[str, tuple[Symbol, ...]]
    ) -> Bounds:
        """All bounds of a run: those that are given, and those that the shapes of its inputs tell. `steps` are those of the inputs.

        Raises BoundsError for a bound that is unknown, compiled in, missing or out of its limits; and the errors of the user's program.
        """
        if not self.limits and not given:
            return self.compiled
        numbers = dict(self.compiled)
        if given is not None and not isinstance(given, Mapping):
            raise BoundsError(
                f"the bounds are {given!r}; they must be a dict from bounds to numbers", hint=f"a run chooses {self._names()}"
            )
        chosen: dict[Symbol, int] = {}
        for key, number in (given or {}).items():
            symbol = Symbol(str(key))
            if symbol not in self.limits:
                if symbol not in numbers:
                    raise BoundsError(f"{key} is not a bound of this program", hint=f"a run chooses {self._names()}")
                if number == numbers[symbol]:
                    continue
                raise BoundsError(
                    f"the bound {key} is {numbers[symbol]} in this program; a run cannot choose {number!r}",
                    hint=f"compile it for every number up to {number}: ctx.compile({{{key}: tp.upto({number})}}, ...). Or for this one alone: "
                    f"program.with_bounds({{{key}: {number}}})",
                )
            chosen[symbol] = self._within(symbol, number)
        for symbol in self.limits:
            if symbol not in chosen:
                chosen[symbol] = self._within(symbol, self._told(symbol, inputs, steps))
        numbers |= chosen
        point = tuple(chosen[symbol] for symbol in self.limits)
        if point not in self._checked:
            self._check(numbers)
            self._checked.add(point)
        return numbers

    def _names(self) -> str:
        return ", ".join(map(str, self.limits)) or "no bound: all are compiled in"

    def _within(self, symbol: Symbol, number: Any) -> int:
        limit = self.limits[symbol]
        if isinstance(number, (bool, Expr)) or not hasattr(number, "__index__"):
            raise BoundsError(
                f"the bound {symbol} is {number!r}; it must be an int",
                hint=f"give an int: program.run(inputs, bounds={{{symbol}: {limit.capacity}}})",
            )
        if not limit.at_least <= number.__index__() <= limit.capacity:
            raise BoundsError(
                f"the bound {symbol} is {number} in this run; the program was compiled for {symbol}: tp.{limit}",
                hint=f"compile it with another capacity: program.with_bounds({{{symbol}: tp.upto({max(number.__index__(), limit.capacity)})}})",
            )
        return int(number.__index__())

    def check_end(self, bound: Symbol, number: int) -> None:
        """Raise BoundsError if a step ended before the least number of points that the program was compiled for.

        Values that rely on that number were not computed then, and `number` may be 0.
        """
        limit = self.limits.get(bound)
        if limit is not None and number < limit.at_least:
            raise BoundsError(
                f"{self.ends[bound].domain.steps[0]} ended before its point {limit.at_least - 1}; the program was compiled for {bound}: tp.{limit}",
                where=self.ends[bound].where,
                hint=f"compile it for runs that end earlier: ctx.compile({{{bound}: tp.upto({limit.capacity})}}, ...)",
            )

    def _told(self, symbol: Symbol, inputs: Mapping[str, Any], steps: Mapping[str, tuple[Symbol, ...]]) -> int:
        """The bound as the shape of an input tells it; of a step that ends early, the most that there is room for."""
        for name, node in self._fed.items():
            shape = getattr(inputs.get(name), "shape", None)
            leading = () if isinstance(node.op, Input) else tuple(step.bound_expr for step in steps.get(name, ()))
            sizes = (*leading, *node.outputs[0].shape)
            if shape is not None and len(shape) == len(sizes):
                for number, size in zip(shape, sizes, strict=True):
                    if size.single_atom == symbol:
                        return int(number)
        if symbol in self.ends:
            return self.limits[symbol].capacity
        raise BoundsError(
            f"the bound {symbol} is missing, and no input has a dimension of this size",
            hint=f"give it: program.run(inputs, bounds={{{symbol}: {self.limits[symbol].capacity}}})",
        )

    def chosen(self, numbers: Bounds) -> dict[Symbol, int]:
        """The points of the steps that a run takes one point of, by the symbol that stands for each in the program."""
        return {value: numbers[bound] - 1 for bound, value in self.values.items()}

    def chosen_size(self, name: str) -> Symbol | None:
        """A bound in the shape of an input that each run chooses; None if there is none."""
        symbols = frozenset().union(*(size.symbols for size in self._fed[name].outputs[0].shape))
        return next((bound for bound in self.limits if bound in symbols), None)

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """The shape of a fed array as the program takes it; None for one that is streamed."""
        return self._shapes.get(name)

    def fitted(self, name: str, array: Any) -> Any:
        """A fed array as the program takes it: as large as the capacity, with zeros at its end."""
        shape = self.shape_of(name)
        if shape is None or shape == tuple(array.shape):
            return array
        whole = aligned.empty(shape, array.dtype)
        whole[...] = 0
        whole[tuple(map(slice, array.shape))] = np.asarray(array)
        return whole

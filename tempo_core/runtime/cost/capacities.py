"""The limits of a run. What a program computes for all points up to a capacity at once, a run of few points needs few of.

A program whose bounds each run chooses is compiled for several capacities, when a run first needs one: the user's, and sizes below, four to each
power of two. A run takes small ones where the cost model has that for clearly faster. Loops take as long at any capacity.

Most conditions of a program on its bounds alone hold for all but the shortest runs: `T >= 2`, where a step has a first and another last point.
A program with such conditions is compiled once more for runs that are not as short, without them.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import cached_property

from tempo_core import prices
from tempo_core.runtime.cost.cost import Cost
from tempo_core.runtime.cost.count import costs_of_runs
from tempo_core.runtime.cost.kernels import bytes_of
from tempo_core.runtime.run_bounds import RunBounds
from tempo_core.runtime.staged.stage import Staged
from tempo_core.schedule import If, Scheduled, walk
from tempo_core.symbolic.expr import Bounds, Expr, Symbol
from tempo_core.symbolic.limits import UpTo
from tempo_core.target import Target


class Capacities:
    """The capacities that the runs of a program take."""

    def __init__(self, scheduled: Scheduled, staged: Staged | None, bounds: RunBounds, target: Target):
        self.target = replace(target, operation=0.0)  # all capacities have the same operations
        self.scheduled, self.staged, self.bounds = scheduled, staged, bounds
        self.steps = dict(zip(bounds.limits, scheduled.graph.chosen, strict=True))
        self._chosen: dict[tuple[int, ...], Bounds] = {}

    def of_run(self, numbers: Bounds, unknown: Set[Symbol]) -> dict[Symbol, UpTo]:
        """The limits for a run that chooses these bounds: the same for all that need the same sizes. Those of `unknown` may be less."""
        least = {bound: min(_size(numbers[bound]), limit.capacity) for bound, limit in self.bounds.limits.items()}
        point = tuple(least.values())
        if point not in self._chosen:
            self._chosen[point] = self._choose(least)
        limits = {bound: replace(limit, capacity=self._chosen[point][bound]) for bound, limit in self.bounds.limits.items()}
        if self.may_be_short:
            for bound in limits.keys() - self.bounds.ends.keys() - unknown:
                if limits[bound].at_least < prices.NOMINAL <= numbers[bound]:
                    limits[bound] = replace(limits[bound], at_least=prices.NOMINAL)
        return limits

    def _choose(self, least: Bounds) -> Bounds:
        """The greatest capacities that take hardly longer than the least, so that few are compiled."""
        chosen = dict(least)
        if all(capacity == self.bounds.limits[bound].capacity for bound, capacity in least.items()):
            return chosen
        most = prices.LEAST_GAIN * self.seconds(least, least) + self.target.launch
        for bound, limit in self.bounds.limits.items():

            def is_fast(capacity: int, bound: Symbol = bound) -> bool:
                return self.seconds({**chosen, bound: capacity}, least) <= most

            if is_fast(limit.capacity):
                chosen[bound] = limit.capacity
            while chosen[bound] < limit.capacity and is_fast(larger := min(_size(chosen[bound] + 1), limit.capacity)):
                chosen[bound] = larger
        return chosen

    def seconds(self, capacities: Bounds, numbers: Bounds) -> float:
        """How long a run with these bounds takes at some capacities, as the cost model has it, but for what is the same at all of them."""
        at = {self.steps[bound].bound_symbol: capacity for bound, capacity in capacities.items()}
        fed = sum(size.evaluate({**self.scheduled.bounds, **at}) for size in self.fed)
        return self.target.seconds(self.costs({**at, **numbers})) + fed / self.target.memory

    def __str__(self) -> str:
        """The capacities that runs took so far, and why."""
        lines = ["capacities, by the bounds of runs and the cost model"]
        for point, chosen in self._chosen.items():
            least = dict(zip(self.bounds.limits, point, strict=True))
            names = ", ".join(f"{bound} up to {size}" for bound, size in least.items())
            sizes = ", ".join(map(str, chosen.values()))
            lines.append(f"  {names}: at {sizes}, about {1e3 * self.seconds(chosen, least):.3g} ms")
        return "\n".join(lines) if self._chosen else ""

    @cached_property
    def may_be_short(self) -> bool:
        """Whether the program has conditions on its bounds alone."""
        values = set(self.bounds.values.values())
        return any(isinstance(item, If) and item.condition.symbols <= values for item in walk(self.scheduled.root))

    @cached_property
    def costs(self) -> Callable[[Bounds], Cost]:
        return costs_of_runs(self.scheduled, self.staged, {step: bound for bound, step in self.steps.items()})

    @cached_property
    def fed(self) -> list[Expr]:
        """The bytes of each array that is copied into one of the size of its capacity, and read from there."""
        sizes = [bytes_of(node.outputs[0]) * 2 for node in self.scheduled.graph.inputs()]
        capacities = {step.bound_symbol for step in self.steps.values()}
        return [size for size in sizes if not capacities.isdisjoint(size.symbols)]


def _size(number: int) -> int:
    """The least capacity for so many points: a power of two, or one, two or three quarters of the way to the next."""
    quarter = 1 << max((number - 1).bit_length() - 3, 0)
    return -(-number // quarter) * quarter

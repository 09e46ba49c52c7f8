"""The interpreter's stores, with one array for each point of each output of each node, and the reads of edges from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tempo_core.backends.base import Array, Backend, numpy_dtype
from tempo_core.errors import UncoveredPointError
from tempo_core.ir.graph import Edge, Graph, Key, Node
from tempo_core.ir.ops import Constant, Input, Merge, Output
from tempo_core.runtime.walk import span
from tempo_core.schedule import Storage
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, StepValues, Symbol

Coordinates = tuple[int, ...]


class Executed(NamedTuple):
    """A statement that ran: its text (`w|1[0, 3]`), the point of its node, the values that it gave, and its operands.

    `place` is its number among the `Execute` leaves of the program. `counters` are the counters of the loops around it.
    """

    statement: str
    point: Coordinates
    values: tuple[Array, ...]
    operands: tuple[Array, ...]
    node: Node
    branch: int | None
    place: int
    counters: StepValues


class Stores:
    """All values of one run, by (node id, output) and point.

    A value goes when it is freed. With a `storage` by (node id, output), it also goes when a later value takes its slot. No
    program does that before the value was read for the last time.
    """

    def __init__(
        self,
        graph: Graph,
        bounds: Mapping[Symbol, int],
        backend: Backend,
        inputs: Mapping[str, Any],
        storage: Mapping[Key, Storage] | None = None,
    ):
        self.graph, self.bounds, self.backend, self.storage = graph, bounds, backend, storage or {}
        self.held: dict[Key, dict[Coordinates, Coordinates]] = {key: {} for key in self.storage}  # slot -> the point in it
        self.values: dict[Key, dict[Coordinates, Array]] = {}
        for node in graph:
            if isinstance(node.op, Input):
                self.values[node.id, 0] = {(): backend.to_device(inputs[node.op.name])}
            elif isinstance(node.op, Constant):
                self.values[node.id, 0] = {(): backend.kernel(node.op, (), bounds)[0]}
            else:
                self.values.update({(node.id, output): {} for output in range(len(node.outputs))})

    def put(self, key: Key, at: Coordinates, value: Array) -> None:
        if (
            isinstance(value, np.ndarray) and not value.flags.c_contiguous
        ):  # as a saved value is: NumPy sums others in another order
            value = value.copy()
        self.values[key][at] = value
        if key in self.storage:
            slot = tuple(self.storage[key].slot(k, p) for k, p in enumerate(at))
            before = self.held[key].get(slot, at)
            self.held[key][slot] = at
            if before != at:
                self.free(key, (before,))

    def free(self, key: Key, points: Iterable[Coordinates]) -> None:
        for at in points:
            self.values[key].pop(at, None)

    def count(self) -> int:
        """The number of values in the stores now."""
        return sum(map(len, self.values.values()))


class Reader:
    """An edge, prepared to be read at any point: `reader(stores, env)` gives its value, with ranges as leading dimensions.

    Points outside of the source's domain give zeros. Raises UncoveredPointError for a point inside of the domain whose value is
    not there. For an `Output`, such a point gives zeros too, and values whose shapes differ from point to point are nested lists.
    """

    def __init__(self, graph: Graph, node: Node, edge: Edge, bounds: Mapping[Symbol, int]):
        self.graph, self.node, self.edge, self.source, self.bounds = graph, node, edge, graph[edge.source], bounds
        self.key = (edge.source, edge.output)
        self.lenient = isinstance(node.op, Output)
        self.is_fixed = isinstance(self.source.op, (Input, Constant))  # the same value at all points
        self.is_point = all(isinstance(i, Point) for i in edge.index)
        # A run has one point of a chosen step, which may not be known when a value is stored.
        at_zero = Point(Expr.of(0))
        self.indices = [at_zero if s in graph.chosen else index for s, index in edge.by_step(self.source.domain).items()]
        self.spans = [span(index, bounds) for index in self.indices]

    def __call__(self, stores: Stores, env: Mapping[Symbol, int]) -> Any:
        values = stores.values[self.key]
        if self.is_fixed and self.is_point:
            return values[()]
        spans = [of(env) for of in self.spans]
        if self.is_point:
            at = tuple(points.start for points in spans)
            value = values.get(at)
            return self._missing(at, env) if value is None else value
        arrays = []
        for at in itertools.product(*spans):
            value = values.get(() if self.is_fixed else at)
            arrays.append(stores.backend.to_host(self._missing(at, env) if value is None else value))
        lengths = [len(points) for points, index in zip(spans, self.indices, strict=True) if isinstance(index, Range)]
        if self.lenient and len({value.shape for value in arrays}) > 1:
            return _nested(arrays, lengths)
        stacked = self._stacked(arrays, lengths, tuple(points.start if points else 0 for points in spans), env)
        return stacked if self.lenient else stores.backend.to_device(stacked)

    def _stacked(
        self, arrays: list[np.ndarray[Any, Any]], lengths: list[int], first: Coordinates, env: Mapping[Symbol, int]
    ) -> np.ndarray[Any, Any]:
        """The values at all points in one array, zero past the end of padded ranges. `first` is the first point, if there is one."""
        ranges = (index for index in self.indices if isinstance(index, Range))
        at = {**self.bounds, **env}
        sizes = [n if index.size is None else index.size.evaluate(at) for n, index in zip(lengths, ranges, strict=True)]
        if not arrays:
            return np.zeros((*sizes, *self._shape(first)), numpy_dtype(self.source.outputs[self.edge.output].dtype))
        stacked = np.stack(arrays).reshape((*lengths, *arrays[0].shape))
        if sizes == lengths:
            return stacked
        padded = np.zeros((*sizes, *arrays[0].shape), stacked.dtype)
        padded[tuple(map(slice, lengths))] = stacked
        return padded

    def _shape(self, at: Coordinates) -> tuple[int, ...]:
        """The shape of the source's value at one of its points."""
        env = {**self.bounds, **dict(zip(self.source.domain.steps, at, strict=True))}
        return tuple(int(size.evaluate(env)) for size in self.source.outputs[self.edge.output].shape)

    def _missing(self, at: Coordinates, env: Mapping[Symbol, int]) -> np.ndarray[Any, Any]:
        steps = self.source.domain.steps
        at = tuple(env[s] if s in self.graph.chosen else value for s, value in zip(steps, at, strict=True)) if at else at
        if self.lenient or self._is_outside(at):
            return np.zeros(self._shape(at), numpy_dtype(self.source.outputs[self.edge.output].dtype))
        here = ", ".join(f"{step.name}={env[step]}" for step in self.node.domain.steps)
        there = ", ".join(f"{step.name}={value}" for step, value in zip(self.source.domain.steps, at, strict=True))
        text = f"{self.node.label} at ({here}) reads {self.source.label} at ({there})"
        why = "which no branch defines" if isinstance(self.source.op, Merge) else "which has not run or was freed"
        raise UncoveredPointError(f"{text}, {why}", where=self.node.where)

    def _is_outside(self, at: Coordinates) -> bool:
        """Whether a point lies outside of its source's domain.

        Passes read such points, and mask the result. (The reads of users were checked when the program was compiled.)
        """
        steps = self.source.domain.steps
        point = {**self.bounds, **dict(zip(steps, at, strict=True))}
        inside = all(0 <= value < self.bounds[step.bound_symbol] for step, value in zip(steps, at, strict=True))
        return not inside or not self.source.domain.condition.evaluate(point)


def _nested(values: list[Any], lengths: list[int]) -> Any:
    """A flat list of values as lists of lists."""
    if len(lengths) == 1:
        return values
    width = len(values) // lengths[0] if lengths[0] else 0
    return [_nested(values[k * width : (k + 1) * width], lengths[1:]) for k in range(lengths[0])]

"""Placement of values in the arrays of the staged executor: traceable reads of edges, and traceable writes of points."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding

from tempo_core.backends.base import Array, Backend, Parts, Split, is_static, numpy_dtype
from tempo_core.ir.graph import Edge, Graph, Key
from tempo_core.ir.ops import Constant, Input, Output
from tempo_core.ir.types import TensorType
from tempo_core.runtime.lower import layouts
from tempo_core.runtime.lower.layouts import Reader
from tempo_core.runtime.lower.liveness import Liveness
from tempo_core.runtime.lower.unroll import Unrolled
from tempo_core.runtime.staged.spread import Spread
from tempo_core.schedule import Storage
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, StepValues, Symbol

# A value, or an array of the values in several slots, whose dimensions lie in the order of `Placement.layout`. A split store has
# several of them: one for each slot of the step along which it is split.
Stores = dict[Key, Any]


def minimum(a: Any, b: Any) -> Any:
    return min(a, b) if is_static(a) and is_static(b) else jnp.minimum(a, b)


def maximum(a: Any, b: Any) -> Any:
    return max(a, b) if is_static(a) and is_static(b) else jnp.maximum(a, b)


def _choose(condition: Any, value: Any, other: Any) -> Any:
    return (value if condition else other) if is_static(condition) else jnp.where(condition, value, other)


class Placement:
    """Reads and writes traced stores. `bounds` are numbers; the steps in `StepValues` may be traced.

    The dimensions of a store are, logically, one for each step with several slots, then the value's own.
    """

    def __init__(
        self,
        graph: Graph,
        storage: Mapping[Key, Storage],
        bounds: Mapping[Symbol, int],
        backend: Backend,
        unrolled: Unrolled | None = None,
        spread: Spread | None = None,
    ):
        self.graph, self.storage, self.bounds, self.backend = graph, storage, dict(bounds), backend
        self.spread = spread
        self.unrolled = unrolled or Unrolled()
        self.liveness = Liveness(graph, storage)
        self.read_at_once: frozenset[Key] = frozenset()  # large stores of which a range is read in the loop that is traced
        self._moves: dict[Key, tuple[Any, Any, Any, Any]] = {}  # the last selection: value, predicate, alternative, result
        self._layouts: dict[Key, tuple[int, ...]] = {}
        self._readers: dict[Key, list[Reader]] = {}  # the reads of ranges
        for node in graph:
            for position, edge in enumerate(() if isinstance(node.op, Output) else node.inputs):
                if any(isinstance(index, Range) for index in edge.index):
                    self._readers.setdefault((edge.source, edge.output), []).append((node, position))

    def value(self, expression: Expr, env: StepValues) -> Any:
        return expression.evaluate(env, minimum, maximum)

    def type(self, key: Key) -> TensorType:
        """The type of one value of a store. An output inside a loop is a store too: its type is that of the value it reads."""
        node = self.graph[key[0]]
        return self.graph.edge_type(node.inputs[0]) if isinstance(node.op, Output) else node.outputs[key[1]]

    def dtype(self, key: Key) -> np.dtype[Any]:
        return numpy_dtype(self.type(key).dtype)

    def slots(self, key: Key) -> tuple[int, ...]:
        """The slots along each step in one array of a store: 1 along the step along which the store is split."""
        slots = list(self.storage[key].slots)
        if key in self.unrolled.stores:
            slots[self.unrolled.stores[key]] = 1
        return tuple(slots)

    def arrays(self, key: Key, make: Callable[[tuple[int, ...], np.dtype[Any]], Any]) -> Any:
        """The contents of a store: `make(shape, dtype)`, or a tuple of such arrays if the store is split."""
        shape, dtype = self.shape(key), self.dtype(key)
        if key not in self.unrolled.stores:
            return make(shape, dtype)
        return tuple(make(shape, dtype) for _ in range(self.storage[key].slots[self.unrolled.stores[key]]))

    def bytes(self, key: Key) -> int:
        """The size of an array of a store."""
        return math.prod(self.shape(key)) * self.dtype(key).itemsize

    def zeros(self, key: Key) -> Any:
        if self.spread is None or not self.spread.divides(self.type(key)):
            return self.arrays(key, jnp.zeros)
        sharding = self.sharding(key)
        return self.arrays(key, lambda shape, dtype: lax.with_sharding_constraint(jnp.zeros(shape, dtype), sharding))

    def sharding(self, key: Key) -> NamedSharding:
        """How the arrays of a store lie on the devices of the step that is spread."""
        assert self.spread is not None
        slots = sum(s > 1 for s in self.slots(key))
        logical = (*(None,) * slots, *self.type(key).shape)
        return self.spread.sharding([logical[k] for k in self.layout(key)])

    def sizes(self, key: Key) -> tuple[int, ...]:
        """The shape of one value of a store."""
        return tuple(size.evaluate(self.bounds) for size in self.type(key).shape)

    def shape(self, key: Key) -> tuple[int, ...]:
        """The shape of an array of a store."""
        logical = tuple(s for s in self.slots(key) if s > 1) + self.sizes(key)
        return tuple(logical[k] for k in self.layout(key))

    def layout(self, key: Key) -> tuple[int, ...]:
        """The logical dimensions of a store in the order in which they lie."""
        if key not in self._layouts:
            self._layouts[key] = layouts.order(self.slots(key), len(self.type(key).shape), self._readers.get(key, ()))
        return self._layouts[key]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(
        self,
        edge: Edge,
        stores: Stores,
        inputs: Mapping[str, Any],
        env: StepValues,
        needs_zeros: Callable[[int, Range], bool] = lambda dimension, index: True,
        in_elements: bool = False,
    ) -> Any:
        """The value that an edge delivers at the reader's point `env`. With `in_elements`, the reader takes nothing but elements of it.

        Where `needs_zeros(dimension, index)` does not hold, anything may stand past the end of a padded range.
        """
        source = self.graph[edge.source]
        if isinstance(source.op, Input):
            value = inputs[source.op.name]
            return Split(value) if source.op.name in self.unrolled.inputs else value
        value, storage, slots, axes = self._stored(edge, stores, env)
        bounds = [self.bounds[step.bound_symbol] for step in source.domain.steps]
        dimensions = list(itertools.accumulate((s > 1 for s in slots), initial=0))  # the logical dimension of a step with slots
        places: dict[int, Any] = {}  # by axis
        for k, index in enumerate(edge.index):  # points first: then a range is gathered from their part of the store alone
            if isinstance(index, Point) and slots[k] > 1:
                at = self._slot(storage, k, self.value(index.expr, env), bounds[k])
                # Outside of the domain, any will do.
                places[axes.index(dimensions[k])] = min(max(int(at), 0), slots[k] - 1) if is_static(at) else at
        point = _Part(value, places)
        axes = [axis for k, axis in enumerate(axes) if k not in places]
        if in_elements and places and axes == sorted(axes) and len(places) == len(edge.index):
            return point
        value = point.value
        spans: list[int] = []  # the logical dimensions that ranges give; negative numbers for steps of one slot
        masks: list[tuple[int, Any]] = []
        for k, index in enumerate(edge.index):
            if isinstance(index, Point):
                continue
            dimension = dimensions[k] if slots[k] > 1 else -1 - len(spans)
            size = int(index.length.evaluate(self.bounds))
            if slots[k] == 1:
                value = jnp.broadcast_to(value, (size, *value.shape))
                axes.insert(0, dimension)
            else:
                value = self._span(value, axes.index(dimension), index, size, (storage, k, bounds[k]), env)
            if index.size is not None and needs_zeros(len(spans), index):
                masks.append((len(spans), self._inside(index, size, env)))
            spans.append(dimension)
        order = spans + sorted(set(axes) - set(spans))
        value = value if order == axes else jnp.transpose(value, [axes.index(k) for k in order])
        for axis, inside in masks:
            mask = jnp.broadcast_to(inside.reshape([-1 if k == axis else 1 for k in range(value.ndim)]), value.shape)
            value = jnp.where(mask, value, jnp.zeros(value.shape, value.dtype))
        return value

    def _stored(self, edge: Edge, stores: Stores, env: StepValues) -> tuple[Any, Storage, tuple[int, ...], list[int]]:
        """The array that has the value of an edge, its storage and slots, and its logical dimensions in the order in which they lie."""
        op, key, rank = self.graph[edge.source].op, (edge.source, edge.output), len(edge.index)
        if isinstance(op, Constant):  # the same value at all points
            value = self.backend.kernel(op, (), self.bounds, 0)[0]
            return value, Storage("register", (1,) * rank), (1,) * rank, list(range(value.ndim))
        points = [index.expr if isinstance(index, Point) else None for index in edge.index]
        value = stores[key][self._part(key, points, env)] if key in self.unrolled.stores else stores[key]
        return value, self.storage[key], self.slots(key), list(self.layout(key))

    def _part(self, key: Key, point: Sequence[Expr | None], env: StepValues) -> int:
        """The number of the array of a split store that holds a point."""
        axis, storage = self.unrolled.stores[key], self.storage[key]
        expression, bound = point[axis], self.bounds[self.graph[key[0]].domain.steps[axis].bound_symbol]
        assert expression is not None, "a store is not split along a step of which a range is read"
        slot = self._slot(storage, axis, self.value(expression, env), bound)
        assert is_static(slot), "a store is split only where all its points are numbers"
        return min(max(int(slot), 0), storage.slots[axis] - 1)  # outside of the domain, where nobody needs the value, any will do

    def _slot(self, storage: Storage, axis: int, at: Any, bound: int) -> Any:
        whole = storage.slots[axis] >= bound and storage.lasting_along(axis) is None
        return at if whole else storage.slot(axis, at, _choose)

    def _inside(self, index: Range, size: int, env: StepValues) -> Any:
        positions = jnp.arange(size, dtype=jnp.int32) * index.stride + self.value(index.start, env)
        return positions < self.value(index.stop, env)

    def _span(self, value: Any, axis: int, index: Range, size: int, along: tuple[Storage, int, int], env: StepValues) -> Any:
        """Positions `start, start + stride, ...` of a store along `axis`. `along` is (storage, the position of the step, its bound)."""
        storage, k, bound = along
        slots, lasting = storage.slots[k], storage.lasting_along(k)
        if size == 0:  # for these bounds, the slice is always empty
            return lax.slice_in_dim(value, 0, 0, axis=axis)
        start = self.value(index.start, env)
        whole = slots >= bound
        if lasting is not None:  # the points that last lie in order, one after the other
            whole = lasting.stride == 1 and slots - lasting.others >= lasting.count and index.size is None
            start = start - lasting.first if whole else start
        starts_inside = not is_static(start) or start >= 0  # outside of the domain nobody needs the value: any will do
        if whole and is_static(start) and starts_inside and start + (size - 1) * index.stride < slots:
            if start == 0 and size == slots and index.stride == 1:
                return value
            return lax.slice_in_dim(value, start, start + (size - 1) * index.stride + 1, index.stride, axis)
        if whole and index.stride == 1 and starts_inside and (index.size is None or _is_aligned(index.start, size, slots)):
            return lax.dynamic_slice_in_dim(value, start, size, axis, allow_negative_indices=False)
        goes_around = not _is_aligned(index.start, size, slots) and not (is_static(start) and start % slots + size <= slots)
        if not whole and lasting is None and index.stride == 1 and not goes_around:
            return value if size == slots else lax.dynamic_slice_in_dim(value, start % slots, size, axis)
        positions = start + jnp.arange(size, dtype=jnp.int32) * index.stride
        positions = jnp.clip(positions, 0, slots - 1) if whole else storage.slot(k, positions, _choose)
        return jnp.take(value, positions, axis=axis, mode="clip")

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, key: Key, value: Any, stores: Stores, env: StepValues, predicate: Any) -> None:
        """Write a value at its point. With a predicate, write it only where the predicate holds."""
        if self.spread is not None:
            value = self.spread.constrained(value, self.type(key))
        if not self.liveness.is_store(key):
            stores[key] = value if predicate is None else self._selected(key, value, stores[key], predicate)
            return
        if key not in self.unrolled.stores:
            stores[key] = self._written(key, value, stores[key], env, predicate)
            return
        parts, steps = list(stores[key]), self.graph[key[0]].domain.steps
        part = self._part(key, [step.expr for step in steps], env)
        parts[part] = self._written(key, value, parts[part], env, predicate)
        stores[key] = tuple(parts)

    def _written(self, key: Key, value: Any, array: Any, env: StepValues, predicate: Any) -> Any:
        """An array of a store, with a value at its point."""
        storage, slots = self.storage[key], self.slots(key)
        at = [
            self._slot(storage, k, env[step], self.bounds[step.bound_symbol])
            for k, step in enumerate(self.graph[key[0]].domain.steps)
            if slots[k] > 1
        ]
        if not at:
            return value if predicate is None else jnp.where(predicate, value, array)
        layout = self.layout(key)
        place = [*at, *(0,) * value.ndim]
        # In a branch that is not taken, a number may lie before the first slot.
        start = tuple(max(place[k], 0) if is_static(place[k]) else jnp.asarray(place[k], jnp.int32) for k in layout)
        shape = (*(1,) * len(at), *value.shape)
        update = value.reshape([shape[k] for k in layout])  # dimensions of size 1 move, those of the value keep their order
        if predicate is not None:
            present = lax.dynamic_slice(array, start, update.shape, allow_negative_indices=False)
            update = jnp.where(predicate, update, present)
        varying = next((k for k, place in enumerate(start) if not is_static(place)), None)
        if key not in self.read_at_once or varying is None:
            return lax.dynamic_update_slice(array, update, start, allow_negative_indices=False)

        def written(at: Any, array: Any) -> Any:
            place = (*start[:varying], at, *start[varying + 1 :])
            return lax.dynamic_update_slice(array, update, place, allow_negative_indices=False)

        # A loop of one iteration, which XLA does not see through. It would else do the write in each reader, on a copy of the store.
        return lax.fori_loop(start[varying], start[varying] + 1, written, array)

    def place(self, key: Key, point: Sequence[Callable[[Any], int]]) -> Callable[[Any], tuple[Any, ...]]:
        """A function that gives the place of a point's value in its store, as an index of an array on the host.

        `point` computes the coordinates from the function's argument.
        """
        storage, bounds = self.storage[key], [self.bounds[step.bound_symbol] for step in self.graph[key[0]].domain.steps]
        at = [
            lambda values, k=k, of=of: self._slot(storage, k, of(values), bounds[k])
            for k, of in enumerate(point)
            if storage.slots[k] > 1
        ]
        whole = slice(None)
        parts = [*at, *[lambda _: whole] * len(self.type(key).shape)]
        order = [parts[k] for k in self.layout(key)] if at else []
        return lambda values: tuple(part(values) for part in order) or (...,)

    def _selected(self, key: Key, value: Any, present: Any, predicate: Any) -> Any:
        """`value` where the predicate holds, else `present`. Several branches in a row that move the same value become one selection."""
        last = self._moves.get(key)
        if last is not None and last[0] is value and last[3] is present:
            predicate, present = last[1] | predicate, last[2]
        selection = jnp.where(predicate, value, present)
        self._moves[key] = (value, predicate, present, selection)
        return selection


@dataclass(frozen=True)
class _Part(Parts):
    """The part of an array at places of some axes, and its elements, each as one slice: XLA makes one kernel of a loop that reads little."""

    array: Any
    places: Mapping[int, Any]  # by axis

    @property
    def value(self) -> Any:
        if not self.places:
            return self.array
        start = [jnp.asarray(self.places.get(axis, 0), jnp.int32) for axis in range(self.array.ndim)]
        sizes = [1 if axis in self.places else n for axis, n in enumerate(self.array.shape)]
        return lax.squeeze(lax.dynamic_slice(self.array, start, sizes, allow_negative_indices=False), tuple(self.places))

    def element(self, axis: int, index: Array) -> Array:
        at = [k for k in range(self.array.ndim) if k not in self.places][axis]
        return _Part(self.array, {**self.places, at: jnp.clip(index, 0, self.array.shape[at] - 1)}).value


def _is_aligned(start: Expr, size: int, slots: int) -> bool:
    """Whether `start` is always a multiple of `size`, and `slots` is one too. A range of that size then lies inside the store."""
    return slots % size == 0 and all(coefficient % size == 0 for _, coefficient in start.terms)

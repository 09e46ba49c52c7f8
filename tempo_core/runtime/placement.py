"""Placement of values in the arrays of the staged executor: traceable reads of edges, and traceable writes of points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tempo_core.backends.base import Backend, is_static, numpy_dtype
from tempo_core.ir.graph import Edge, Graph, Key
from tempo_core.ir.ops import Constant, Input, Output
from tempo_core.ir.types import TensorType
from tempo_core.runtime.liveness import Liveness
from tempo_core.schedule import Storage
from tempo_core.symbolic.domain import Point, Range
from tempo_core.symbolic.expr import Expr, StepValues, Symbol

Stores = dict[Key, Any]  # a value, or an array of the values in several slots, in the dimensions' order of `Placement.layout`


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

    def __init__(self, graph: Graph, storage: Mapping[Key, Storage], bounds: Mapping[Symbol, int], backend: Backend):
        self.graph, self.storage, self.bounds, self.backend = graph, storage, dict(bounds), backend
        self.liveness = Liveness(graph, storage)
        self._moves: dict[Key, tuple[Any, Any, Any, Any]] = {}  # the last selection: value, predicate, alternative, result
        self._layouts: dict[Key, tuple[int, ...]] = {}
        self._ranged: dict[Key, set[int]] = {}  # the positions of steps along which some operation reads a range
        for node in graph:
            for edge in () if isinstance(node.op, Output) else node.inputs:
                ranges = (k for k, index in enumerate(edge.index) if isinstance(index, Range))
                self._ranged.setdefault((edge.source, edge.output), set()).update(ranges)

    def value(self, expression: Expr, env: StepValues) -> Any:
        return expression.evaluate(env, minimum, maximum)

    def type(self, key: Key) -> TensorType:
        """The type of one value of a store. An output inside a loop is a store too: its type is that of the value it reads."""
        node = self.graph[key[0]]
        return self.graph.edge_type(node.inputs[0]) if isinstance(node.op, Output) else node.outputs[key[1]]

    def dtype(self, key: Key) -> np.dtype[Any]:
        return numpy_dtype(self.type(key).dtype)

    def shape(self, key: Key) -> tuple[int, ...]:
        """The shape of the array that holds a store."""
        type = self.type(key)
        slots = tuple(s for s in self.storage[key].slots if s > 1)
        logical = slots + tuple(size.evaluate(self.bounds) for size in type.shape)
        return tuple(logical[k] for k in self.layout(key))

    def layout(self, key: Key) -> tuple[int, ...]:
        """The logical dimensions of a store in the order in which they lie.

        Slots come first, so that a value is one piece. One exception: if ranges are read along one step, its slots stand before
        the value's last dimension. There, contractions over them (attention over keys) need no transposition.
        """
        if key not in self._layouts:
            leading = [k for k, slots in enumerate(self.storage[key].slots) if slots > 1]
            rank = len(self.type(key).shape)
            order = list(range(len(leading) + rank))
            ranged = [place for place, k in enumerate(leading) if k in self._ranged.get(key, ())]
            if rank >= 2 and len(ranged) == 1:
                order.remove(ranged[0])
                order.insert(len(order) - 1, ranged[0])
            self._layouts[key] = tuple(order)
        return self._layouts[key]

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, edge: Edge, stores: Stores, inputs: Mapping[str, Any], env: StepValues) -> Any:
        """The value that an edge delivers at the reader's point `env`."""
        source = self.graph[edge.source]
        if isinstance(source.op, Input):
            return inputs[source.op.name]
        key = (edge.source, edge.output)
        if isinstance(source.op, Constant):  # the same value at all points
            value, storage = self.backend.kernel(source.op, (), self.bounds, 0)[0], Storage("register", (1,) * len(edge.index))
        else:
            value, storage = stores[key], self.storage[key]
        axes = list(self.layout(key)) if storage.size > 1 else list(range(value.ndim))  # logical dimensions, as they lie
        spans: list[int] = []  # the logical dimensions that ranges give; negative numbers for steps of one slot
        masks: list[tuple[int, Any]] = []
        slotted = 0
        for k, (step, index, slots) in enumerate(zip(source.domain.steps, edge.index, storage.slots, strict=True)):
            bound = self.bounds[step.bound_symbol]
            dimension = slotted if slots > 1 else -1 - len(spans)
            slotted += slots > 1
            if isinstance(index, Point):
                if slots > 1:
                    at = self._slot(storage, k, self.value(index.expr, env), bound)
                    value = lax.dynamic_index_in_dim(
                        value, at, axes.index(dimension), keepdims=False, allow_negative_indices=False
                    )
                    axes.remove(dimension)
                continue
            size = int(index.length.evaluate(self.bounds))
            if slots == 1:
                value = jnp.broadcast_to(value, (size, *value.shape))
                axes.insert(0, dimension)
            else:
                value = self._span(value, axes.index(dimension), index, size, (storage, k, bound), env)
            if index.size is not None:
                masks.append((len(spans), self._inside(index, size, env)))
            spans.append(dimension)
        order = spans + sorted(set(axes) - set(spans))
        if order != axes:
            value = jnp.transpose(value, [axes.index(k) for k in order])
        for position, inside in masks:
            shape = [1] * value.ndim
            shape[position] = inside.shape[0]
            mask = jnp.broadcast_to(inside.reshape(shape), value.shape)
            value = jnp.where(mask, value, jnp.zeros(value.shape, value.dtype))
        return value

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
            whole = lasting.stride == 1 and slots > lasting.count and index.size is None
            start = start - lasting.first if whole else start
        if whole and is_static(start) and start + (size - 1) * index.stride < slots:
            if start == 0 and size == slots and index.stride == 1:
                return value
            return lax.slice_in_dim(value, start, start + (size - 1) * index.stride + 1, index.stride, axis)
        if whole and index.stride == 1 and (index.size is None or _is_aligned(index.start, size, slots)):
            return lax.dynamic_slice_in_dim(value, start, size, axis, allow_negative_indices=False)
        positions = start + jnp.arange(size, dtype=jnp.int32) * index.stride
        positions = jnp.clip(positions, 0, slots - 1) if whole else storage.slot(k, positions, _choose)
        return jnp.take(value, positions, axis=axis, mode="clip")

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, key: Key, value: Any, stores: Stores, env: StepValues, predicate: Any) -> None:
        """Write a value at its point. With a predicate, write it only where the predicate holds."""
        if not self.liveness.is_store(key):
            stores[key] = value if predicate is None else self._selected(key, value, stores[key], predicate)
            return
        storage = self.storage[key]
        at = [
            self._slot(storage, k, env[step], self.bounds[step.bound_symbol])
            for k, step in enumerate(self.graph[key[0]].domain.steps)
            if storage.slots[k] > 1
        ]
        layout = self.layout(key)
        place = [*at, *(0,) * value.ndim]
        start = tuple(jnp.asarray(place[k], jnp.int32) for k in layout)
        shape = (*(1,) * len(at), *value.shape)
        update = value.reshape([shape[k] for k in layout])  # dimensions of size 1 move, those of the value keep their order
        if predicate is not None:
            present = lax.dynamic_slice(stores[key], start, update.shape, allow_negative_indices=False)
            update = jnp.where(predicate, update, present)
        stores[key] = lax.dynamic_update_slice(stores[key], update, start, allow_negative_indices=False)

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


def _is_aligned(start: Expr, size: int, slots: int) -> bool:
    """Whether `start` is always a multiple of `size`, and `slots` is one too. A range of that size then lies inside the store."""
    return slots % size == 0 and all(coefficient % size == 0 for _, coefficient in start.terms)
